#pragma once

#include "partita/backend/backend.hpp"
#include "partita/comm/communicator.hpp"

#include <vector>

namespace partita {

/// Batch normalisation with statistics over the ranks of a communicator, or over this rank alone.
///
///     mean[C@b] = sum over a, c of x[N@a C@b H@c] / count         variance likewise
///     y = scale * (x - mean) * r + shift,  r = 1/sqrt(variance + epsilon)
///     dx = scale * r * (dy - (sum dy + xhat * sum dy*xhat)/count),  xhat = (x - mean) * r
/// (Ioffe and Szegedy 2015.) Sums are formed and travel in double.
struct NormStatistics {
  std::vector<double> mean, variance, inverse_deviation;  ///< one a local channel
  Index count = 0;                                        ///< elements behind each mean, over all ranks
};

/// Statistics of a batch; `ranks` is null for this rank's part alone. `count` is over all `ranks`. A part without
/// elements (count 0) gets mean 0 and variance 1.
NormStatistics batch_statistics(Backend& backend, Communicator* ranks, const Tensor& x, Index count, double epsilon,
                                Stream stream);
/// Statistics from running means and variances (f64 or f32 tensors), for evaluation.
NormStatistics running_statistics(const Tensor& mean, const Tensor& variance, double epsilon);

/// y = scale * (x - mean) * inverse_deviation + shift, a channel; scale and shift hold the channels of x.
void norm_forward(Backend& backend, const NormStatistics& statistics, const Tensor& x, const Tensor& scale,
                  const Tensor& shift, const Tensor& y, Stream stream);

/// The two sums of the backward, summed over `ranks` if there are any: sum dy (the gradient of shift) and sum dy*xhat
/// (of scale).
struct NormGradientSums {
  std::vector<double> dy, dy_xhat;
};
NormGradientSums norm_gradient_sums(Backend& backend, Communicator* ranks, const NormStatistics& statistics,
                                    const Tensor& x, const Tensor& dy, Stream stream);

/// dx of the same, where mean and variance depend on x: scale * inverse_deviation * (dy - (sum dy + xhat * sum dy*xhat) / count).
void norm_backward(Backend& backend, const NormStatistics& statistics, const NormGradientSums& sums, const Tensor& x,
                   const Tensor& dy, const Tensor& scale, const Tensor& dx, Stream stream);

}  // namespace partita
