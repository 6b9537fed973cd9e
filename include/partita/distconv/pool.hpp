#pragma once

#include "partita/distconv/halo_exchange.hpp"

#include <vector>

namespace partita {

/// One rank's part of a pooling that is partitioned over samples, channels and space.
///
///     y[N@a C@b H@c] = pool(x[N@a C@b H@c] with halo)
///     dx = pool'(dy): the gradients of the halo go back to its owners, which add them to their own
class SpatialPool {
 public:
  SpatialPool(PoolKind kind, std::vector<Window> windows, bool count_padding, const Halo& x, int rank);

  /// Computes y for this rank's outputs. `picked` (i32, with y's box) stores what backward() needs; average pooling
  /// does not use it.
  void forward(const RankContext& rank, const Tensor& x, const Tensor& y, const Tensor& picked) const;
  /// Computes dx, the gradients of this rank's inputs, including the contributions of its neighbors.
  void backward(const RankContext& rank, const Tensor& dy, const Tensor& picked, const Tensor& dx) const;

 private:
  Pooling pooling() const { return {kind_, windows_, count_padding_}; }

  PoolKind kind_;
  std::vector<Window> windows_;
  bool count_padding_;
  HaloPart halo_;
};

}  // namespace partita
