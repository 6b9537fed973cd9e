#pragma once

#include "partita/backend/backend.hpp"
#include "partita/comm/communicator.hpp"
#include "partita/layouts/halo.hpp"
#include "partita/tensor/exchange.hpp"

#include <memory>
#include <vector>

namespace partita {

/// What one rank computes with and talks through.
struct RankContext {
  Backend& backend;
  Communicator& comm;  ///< all ranks of the grid
  bool overlap = true;
  Stream stream;

  /// True if it pays to compute what needs no halo before the halos are there.
  bool ahead() const { return overlap && comm.asynchronous(); }
};

/// A convolution partitioned over samples and space, as one rank runs it. Weights are whole; channels too.
///
///     y[N@a H@b W@c] = conv(x[N@a H@b W@c] with halo, w[F C H W]) + bias[F]
///     dx[N@a H@b W@c] = conv'(dy[N@a H@b W@c] with halo, w)
///     dw[F C H W sum@(a,b,c)] = conv'(x with halo, dy)
class SpatialConv {
 public:
  /// `x` and `dy` are the halos of the layer's plan (halo_of_inputs, halo_of_outputs).
  SpatialConv(std::vector<Window> windows, const Halo& x, const Halo& dy, int rank);

  /// The local convolutions of these calls that are worth choosing a kernel for (not the thin ones at borders), for the
  /// boxes of x and y that they will get.
  std::vector<ConvProblem> problems(const Box& x, const Box& y, bool with_bias, bool ahead) const;

  /// y of this rank's outputs, and in `extended` the inputs that they read, for the filter's gradient: `x` itself where
  /// it needs no halo. Ahead of halos that travel alone the whole of y is computed from `x`, and then the outputs near
  /// the border, which read a halo, once more: convolution with zeros for what is not there yet is right elsewhere.
  void forward(const RankContext& rank, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y,
               Tensor& extended) const;

  /// The exchange of dy, to be hidden behind the filter's gradient; finished by backward_data.
  class DyExchange {
   public:
    friend class SpatialConv;

   private:
    Tensor extended_;
    std::unique_ptr<Exchange> exchange_;
  };
  DyExchange start_backward(const RankContext& rank, const Tensor& dy) const;
  /// dx from this rank's and its neighbours' dy.
  void backward_data(const RankContext& rank, DyExchange& dy, const Tensor& w, const Tensor& dx) const;
  /// dw = this rank's part, or dw += it; the sum over ranks is the caller's.
  void backward_filter(const RankContext& rank, const Tensor& extended, const Tensor& dy, const Tensor& dw,
                       Write write) const;

 private:
  /// True if most of y reads no halo.
  bool has_interior(const Box& x, const Box& y) const;

  std::vector<Window> windows_;
  TransferPlan x_plan_, dy_plan_;
  Box x_needed_, dy_needed_;
};

}  // namespace partita
