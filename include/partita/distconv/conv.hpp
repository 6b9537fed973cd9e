#pragma once

#include "partita/distconv/halo_exchange.hpp"

#include <vector>

namespace partita {

/// A convolution partitioned over samples and space, as one rank runs it, of the channels and filters that it has: sums
/// over ranks with other channels are the caller's.
///
///     y[N@a C@o H@b W@c sum@i] = conv(x[N@a C@i H@b W@c] with halo, w[F@o C@i H W]) + bias[F@o]
///     dx[N@a C@i H@b W@c sum@o] = conv'(dy[N@a C@o H@b W@c] with halo, w)
///     dw[F@o C@i H W sum@(a,b,c)] = conv'(x with halo, dy)
class SpatialConv {
 public:
  /// `x` and `dy` are the halos of the layer's plan (halo_of_inputs, halo_of_outputs).
  SpatialConv(std::vector<Window> windows, const Halo& x, const Halo& dy, int rank);

  /// The local convolutions of these calls that are worth choosing a kernel for (not the thin ones at borders), for the
  /// boxes of x, w and y that they will get.
  std::vector<ConvProblem> problems(const Box& x, const Box& w, const Box& y, bool with_bias, bool ahead) const;

  /// y of this rank's outputs, and in `extended` the inputs that they read, for the filter's gradient: `x` itself where
  /// it needs no halo. Ahead of halos that travel alone the whole of y is computed from `x`, and then the outputs near
  /// the border, which read a halo, once more: convolution with zeros for what is not there yet is right elsewhere.
  void forward(const RankContext& rank, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y,
               Tensor& extended) const;

  /// The exchange of dy, to be hidden behind the filter's gradient; finished by backward_data.
  HaloExchange start_backward(const RankContext& rank, const Tensor& dy) const;
  /// dx from this rank's and its neighbours' dy.
  void backward_data(const RankContext& rank, HaloExchange& dy, const Tensor& w, const Tensor& dx) const;
  /// dw = this rank's part, or dw += it; the sum over ranks is the caller's.
  void backward_filter(const RankContext& rank, const Tensor& extended, const Tensor& dy, const Tensor& dw,
                       Write write) const;

 private:
  /// True if most of y reads no halo.
  bool has_interior(const Box& x, const Box& y) const;

  std::vector<Window> windows_;
  HaloPart x_, dy_;
};

}  // namespace partita
