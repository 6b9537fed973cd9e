#pragma once

#include "partita/distconv/conv.hpp"

namespace partita {

/// A transposed convolution partitioned over samples and space, as one rank runs it, of the channels that it has. It is the
/// adjoint of a convolution with the same windows and weights, whose dy is x and whose dx is y.
///
///     y[N@a C@o H@b sum@i] = conv'(x[N@a C@i H@b] with halo, w[F@i C@o H W]) + bias[F@o]
///     dx[N@a C@i H@b sum@o] = conv(dy[N@a C@o H@b] with halo, w)
///     dw[F@i C@o H W sum@(a,b)] = conv'(dy, x with halo): x takes the place of dy
class SpatialConvTranspose {
 public:
  /// `x` and `dy` are the halos of the layer's plan.
  SpatialConvTranspose(std::vector<Window> windows, const Halo& x, const Halo& dy, int rank);

  /// The local convolutions of these calls, for the boxes of x, w and y that they will get.
  std::vector<ConvProblem> problems(const Box& x, const Box& w, const Box& y) const;

  /// y of this rank's outputs, and in `extended` the inputs that add to them.
  void forward(const RankContext& rank, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y,
               Tensor& extended) const;
  /// The exchange of dy, to be hidden behind the filter's gradient; finished by backward_data.
  HaloExchange start_backward(const RankContext& rank, const Tensor& dy) const;
  void backward_data(const RankContext& rank, HaloExchange& dy, const Tensor& w, const Tensor& dx) const;
  /// dw = this rank's part, or dw += it: of its own outputs and all that adds to them.
  void backward_filter(const RankContext& rank, const Tensor& extended, const Tensor& dy, const Tensor& dw,
                       Write write) const;

 private:
  std::vector<Window> windows_;
  HaloPart x_, dy_;
};

}  // namespace partita
