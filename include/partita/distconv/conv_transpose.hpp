#pragma once

#include "partita/distconv/conv.hpp"

namespace partita {

/// One rank's part of a transposed convolution that is partitioned over samples and space. It works on the channels
/// that the rank holds. It is the adjoint of a convolution with the same windows and weights: x takes the place of that
/// convolution's dy, and y the place of its dx.
///
///     y[N@a C@o H@b sum@i] = conv'(x[N@a C@i H@b] with halo, w[F@i C@o H W]) + bias[F@o]
///     dx[N@a C@i H@b sum@o] = conv(dy[N@a C@o H@b] with halo, w)
///     dw[F@i C@o H W sum@(a,b)] = conv'(dy, x with halo), with x in the place of dy
class SpatialConvTranspose : public SpatialHalos {
 public:
  using SpatialHalos::SpatialHalos;

  /// Returns the local convolutions that this layer runs on tensors with the boxes `x`, `w` and `y`.
  std::vector<ConvProblem> problems(const Box& x, const Box& w, const Box& y) const;

  /// Computes y for this rank's outputs. Returns in `extended` the inputs that contribute to them.
  void forward(const RankContext& rank, const Tensor& x, const Tensor& w, const Epilogue& epilogue, const Tensor& y,
               Tensor& extended) const;
  void backward_data(const RankContext& rank, HaloExchange& dy, const Tensor& w, const Tensor& dx) const;
  /// Computes dw = part, or dw += part, from this rank's outputs and all inputs that contribute to them. The caller
  /// sums over ranks.
  void backward_filter(const RankContext& rank, const Tensor& extended, const Tensor& dy, const Tensor& dw,
                       Write write) const;
};

}  // namespace partita
