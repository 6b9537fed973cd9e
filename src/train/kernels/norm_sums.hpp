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
// Sources: Ioffe and Szegedy 2015 (batch normalization); Wu and He 2018 (groups). A large mean costs no accuracy: a
// rank sums x - center and (x - center)^2 about a center among its elements ("shifted data" of Chan, Golub and LeVeque,
// "Algorithms for Computing the Sample Variance", 1983), in double. From these it forms sums of x and x^2 in twice the
// digits, as four numbers that add up over ranks in one collective.

/// Returns the statistics of x (Backend::norm_statistics) for each of `parts` parts and of `groups` groups of the local
/// channels. `count` is the number of elements of each over all `ranks`. If it is 0, the mean is 0 and the variance is
/// 1. Advances the running statistics, if there are any. Collective: every rank of `ranks` calls it.
Tensor norm_statistics(Backend& backend, Communicator* ranks, const Tensor& x, Index parts, Index groups, Index count,
                       double epsilon, const RunningStatistics& running, Stream stream);

/// The two sums of the backward pass (Backend::channel_gradient_sums), from which the gradients of shift and scale
/// come, and those from which dx comes.
struct NormGradientSums {
  Tensor of_weights, of_dx;
};

/// Batch normalization has one pair of sums for both, over `ranks`. Collective: every rank of `ranks` calls it.
NormGradientSums norm_gradient_sums(Backend& backend, Communicator* ranks, const Tensor& statistics, const Tensor& x,
                                    const MaskedGradient& dy, Stream stream);

/// Group normalization has sums of this rank for each of `parts` parts, and sums over `ranks` for each of their
/// `groups` groups, which have the scale in them. Collective: every rank of `ranks` calls it.
NormGradientSums group_gradient_sums(Backend& backend, Communicator* ranks, const Tensor& statistics, const Tensor& x,
                                     const MaskedGradient& dy, const Tensor& scale, Index parts, Index groups,
                                     Stream stream);

/// Adds numbers of `ranks`; a null pointer stands for this rank alone. Collective: every rank of `ranks` calls it.
void sum_over(Communicator* ranks, const Tensor& numbers, Stream stream);

}  // namespace partita
