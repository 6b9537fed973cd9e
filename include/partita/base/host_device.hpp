#pragma once

/// Marks a function that the CPU and a GPU may call. It stands before the function's type.
#if defined(__CUDACC__)
#define PARTITA_HOST_DEVICE __host__ __device__
#else
#define PARTITA_HOST_DEVICE
#endif
