#pragma once

#include "partita/distconv/halo_exchange.hpp"

#include <vector>

namespace partita {

/// Pooling partitioned over samples, channels and space, as one rank runs it.
///
///     y[N@a C@b H@c] = pool(x[N@a C@b H@c] with halo)
///     dx = pool'(dy): the gradients of the halo go back to its owners, which add them
class SpatialPool {
 public:
  SpatialPool(PoolKind kind, std::vector<Window> windows, bool count_padding, const Halo& x, int rank);

  /// y of this rank's outputs; `picked` keeps what the backward needs (i32, y's box; left alone by averages).
  void forward(const RankContext& rank, const Tensor& x, const Tensor& y, const Tensor& picked) const;
  /// dx = gradients of this rank's inputs, its neighbours' contributions included.
  void backward(const RankContext& rank, const Tensor& dy, const Tensor& picked, const Tensor& dx) const;

 private:
  Pooling pooling() const { return {kind_, windows_, count_padding_}; }

  PoolKind kind_;
  std::vector<Window> windows_;
  bool count_padding_;
  HaloPart halo_;
};

}  // namespace partita
