#pragma once

#include "partita/backend/backend.hpp"
#include "partita/comm/communicator.hpp"

namespace partita {

// Batch normalization over the ranks of a communicator, or over this rank alone. The backend's kernels do the rest.
//
//     mean[C@b] = sum over a, c of x[N@a C@b H@c] / count,  the variance in the same way
//     y = scale * (x - mean) * r + shift,  r = 1/sqrt(variance + epsilon)
//     dx = scale * r * (dy - (sum dy + xhat * sum dy*xhat)/count),  xhat = (x - mean) * r
// Source: Ioffe and Szegedy 2015. Sums are formed and communicated in double.

/// Returns the statistics of a batch (Backend::norm_statistics) for the local channels. `ranks` is null if they are
/// taken over this rank's part alone. `count` is the number of elements per channel over all `ranks`. If it is 0, the
/// mean is 0 and the variance is 1.
/// Collective: every rank of `ranks` calls it.
Tensor batch_statistics(Backend& backend, Communicator* ranks, const Tensor& x, Index count, double epsilon,
                        Stream stream);

/// Returns the two sums of the backward pass (Backend::channel_gradient_sums), summed over `ranks` unless it is null:
/// the gradients of shift and of scale. Collective: every rank of `ranks` calls it.
Tensor norm_gradient_sums(Backend& backend, Communicator* ranks, const Tensor& statistics, const Tensor& x,
                          const Tensor& dy, Stream stream);

}  // namespace partita
