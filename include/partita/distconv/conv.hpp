#pragma once

#include "partita/distconv/halo_exchange.hpp"

#include <vector>

namespace partita {

/// One rank's part of a convolution that is partitioned over samples and space. It works on the channels and filters
/// that the rank holds. If other ranks hold other channels, the caller sums over those ranks.
///
///     y[N@a C@o H@b W@c sum@i] = conv(x[N@a C@i H@b W@c] with halo, w[F@o C@i H W]) + bias[F@o]
///     dx[N@a C@i H@b W@c sum@o] = conv'(dy[N@a C@o H@b W@c] with halo, w)
///     dw[F@o C@i H W sum@(a,b,c)] = conv'(x with halo, dy)
class SpatialConv : public SpatialHalos {
 public:
  using SpatialHalos::SpatialHalos;

  /// Returns the local convolutions that this layer runs on tensors with the boxes `x`, `w` and `y`, for kernel
  /// selection. The thin convolutions at borders are left out, as they are not worth a measurement. `ahead` is
  /// RankContext::ahead().
  std::vector<ConvProblem> problems(const Box& x, const Box& w, const Box& y, bool with_bias, bool ahead) const;

  /// Computes y for this rank's outputs. Returns in `extended` the inputs that they read, which backward_filter needs;
  /// this is `x` itself if no halo is needed. If the transport makes progress on its own, the rank computes all of y
  /// from `x` while the halos travel. It then recomputes the outputs near the border, which read a halo. This is
  /// correct because missing inputs count as zeros and change only those outputs.
  void forward(const RankContext& rank, const Tensor& x, const Tensor& w, const Epilogue& epilogue, const Tensor& y,
               Tensor& extended) const;

  /// Computes dx from the dy of this rank and of its neighbors.
  void backward_data(const RankContext& rank, HaloExchange& dy, const Tensor& w, const Tensor& dx) const;
  /// Computes this rank's part: dw = part, or dw += part. The caller sums over ranks.
  void backward_filter(const RankContext& rank, const Tensor& extended, const Tensor& dy, const Tensor& dw,
                       Write write) const;
};

}  // namespace partita
