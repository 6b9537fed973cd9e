#pragma once

#include "partita/backend/backend.hpp"
#include "partita/comm/communicator.hpp"

namespace partita {

// Normalization over the ranks of a communicator, or over this rank alone (`ranks` is null). The backend's kernels do
// the rest.
//
//     mean[C@b] = sum over a, c of x[N@a C@b H@c] / count,  the variance in the same way
//     y = scale * (x - mean) * r + shift,  r = 1/sqrt(variance + epsilon)
//     dx = scale * r * (dy - (sum dy + xhat * sum dy*xhat)/count),  xhat = (x - mean) * r
// Sources: Ioffe and Szegedy 2015 (batch normalization); Wu and He 2018 (groups). The mean and the variance come from
// sums of x - center and (x - center)^2 about a center near the mean, which all ranks share, so that a large mean costs
// no accuracy: "shifted data" of Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance", 1983. Sums
// are formed and communicated in double.

/// Returns a center for each of `parts` parts and of `groups` groups of the local channels: the largest of the ranks'
/// own (Backend::channel_centers). Collective: every rank of `ranks` calls it.
Tensor norm_centers(Backend& backend, Communicator* ranks, const Tensor& x, Index parts, Index groups, Stream stream);

/// Returns the statistics of x (Backend::norm_statistics) for the parts and groups that have `centers`. `count` is the
/// number of elements of each over all `ranks`. If it is 0, the mean is 0 and the variance is 1.
/// Collective: every rank of `ranks` calls it.
Tensor norm_statistics(Backend& backend, Communicator* ranks, const Tensor& x, const Tensor& centers, Index count,
                       double epsilon, Stream stream);

/// Returns the two sums of the backward pass of batch normalization (Backend::channel_gradient_sums), summed over
/// `ranks`: the gradients of shift and of scale. Collective: every rank of `ranks` calls it.
Tensor norm_gradient_sums(Backend& backend, Communicator* ranks, const Tensor& statistics, const Tensor& x,
                          const Tensor& dy, Stream stream);

}  // namespace partita
