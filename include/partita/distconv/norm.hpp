#pragma once

#include "partita/backend/backend.hpp"
#include "partita/comm/communicator.hpp"

#include <vector>

namespace partita {

/// Statistics of a batch normalization, over the ranks of a communicator or over this rank alone.
///
///     mean[C@b] = sum over a, c of x[N@a C@b H@c] / count,  the variance in the same way
///     y = scale * (x - mean) * r + shift,  r = 1/sqrt(variance + epsilon)
///     dx = scale * r * (dy - (sum dy + xhat * sum dy*xhat)/count),  xhat = (x - mean) * r
/// Source: Ioffe and Szegedy 2015. Sums are formed and communicated in double.
struct NormStatistics {
  std::vector<double> mean, variance, inverse_deviation;  ///< one entry per local channel
  Index count = 0;                                        ///< elements that each mean is taken over, on all ranks
};

/// Computes the statistics of a batch. `ranks` is null if they are taken over this rank's part alone. `count` is the
/// number of elements per channel over all `ranks`. If it is 0, the mean is 0 and the variance is 1.
/// Collective: every rank of `ranks` calls it.
NormStatistics batch_statistics(Backend& backend, Communicator* ranks, const Tensor& x, Index count, double epsilon,
                                Stream stream);
/// Makes statistics from running means and variances (f64 or f32 tensors), for evaluation.
NormStatistics running_statistics(const Tensor& mean, const Tensor& variance, double epsilon);

/// y = scale * (x - mean) * inverse_deviation + shift for each channel. scale and shift hold the channels of x.
void norm_forward(Backend& backend, const NormStatistics& statistics, const Tensor& x, const Tensor& scale,
                  const Tensor& shift, const Tensor& y, Stream stream);

/// The two sums of the backward pass, summed over `ranks` unless it is null: sum dy (the gradient of shift) and
/// sum dy*xhat (the gradient of scale). Collective: every rank of `ranks` calls norm_gradient_sums().
struct NormGradientSums {
  std::vector<double> dy, dy_xhat;
};
NormGradientSums norm_gradient_sums(Backend& backend, Communicator* ranks, const NormStatistics& statistics,
                                    const Tensor& x, const Tensor& dy, Stream stream);

/// Computes dx when mean and variance depend on x:
/// dx = scale * inverse_deviation * (dy - (sum dy + xhat * sum dy*xhat) / count).
void norm_backward(Backend& backend, const NormStatistics& statistics, const NormGradientSums& sums, const Tensor& x,
                   const Tensor& dy, const Tensor& scale, const Tensor& dx, Stream stream);

}  // namespace partita
