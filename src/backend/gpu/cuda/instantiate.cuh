#pragma once

#include "src/backend/gpu/cuda/launcher.cuh"

#include <Eigen/Core>

// Macros that instantiate the functions of CudaLauncher for a functor.

/// Repeats a macro for every type of elements.
#define PARTITA_FOR_TYPES(MACRO) MACRO(double) MACRO(float) MACRO(Eigen::bfloat16) MACRO(Eigen::half)

#define PARTITA_ELEMENTS(...) template void CudaLauncher::for_elements(const Stack&, const __VA_ARGS__&, Stream) const;
#define PARTITA_EACH(...) template void CudaLauncher::for_each(Index, Index, const __VA_ARGS__&, Stream) const;
#define PARTITA_RAGGED(...) template void CudaLauncher::for_ragged(const Lengths&, const __VA_ARGS__&, Stream) const;
#define PARTITA_COLUMNS(K, FINISH, ...) \
  template void CudaLauncher::reduce_columns<double, K>(const Stack&, const __VA_ARGS__&, const FINISH&, Stream) const;
#define PARTITA_REDUCE(A, K, VALUE, FINISH) \
  template void CudaLauncher::reduce<A, K>(Index, Index, const VALUE&, const FINISH&, Stream) const;
