#include "partita/distconv/pool.hpp"

#include "partita/layouts/interior.hpp"

namespace partita {

SpatialPool::SpatialPool(PoolKind kind, std::vector<Window> windows, bool count_padding, const Halo& x, int rank)
    : kind_(kind), windows_(std::move(windows)), count_padding_(count_padding), halo_(x, rank) {}

// Overlaps as SpatialConv::forward does: the maximum or mean of the available inputs is correct for all outputs whose
// inputs are complete. The others are recomputed.
void SpatialPool::forward(const RankContext& rank, const Tensor& x, const Tensor& y, const Tensor& picked) const {
  HaloExchange halo(halo_, x, rank);
  const Tensor& extended = halo.extended();
  const Box inside = interior_of(windows_, x.box(), halo_.needed, y.box());
  const bool ahead = rank.ahead() && worth_overlap(inside, y.box());
  if (ahead) rank.backend.pool_forward(pooling(), x, y, picked, rank.stream);
  halo.finish();
  if (!ahead) {
    rank.backend.pool_forward(pooling(), extended, y, picked, rank.stream);
    return;
  }
  for (const Box& border : subtract(y.box(), inside)) {
    const Box reads = reads_of(windows_, border, extended.box());
    const Tensor thin_y = y.like(border, MemoryClass::workspace);
    const Tensor thin_picked = picked ? picked.like(border, MemoryClass::workspace) : picked;
    rank.backend.pool_forward(pooling(), extract(extended, reads, MemoryClass::workspace, rank.stream), thin_y,
                              thin_picked, rank.stream);
    copy_box(thin_y, y, border, rank.stream);
    if (picked) copy_box(thin_picked, picked, border, rank.stream);
  }
}

// Computes the gradients of the outputs near the border first, so that they travel while the rest is computed.
void SpatialPool::backward(const RankContext& rank, const Tensor& dy, const Tensor& picked, const Tensor& dx) const {
  HaloReturn halo(halo_, dx, rank.stream);
  const Tensor& extended = halo.extended();
  const Box inside = interior_of(windows_, dx.box(), halo_.needed, dy.box());
  const auto backward = [&](const Box& part, const Tensor& to) {
    if (part == dy.box()) return rank.backend.pool_backward(pooling(), dy, picked, to, rank.stream);
    const Tensor thin_picked = picked ? extract(picked, part, MemoryClass::workspace, rank.stream) : picked;
    rank.backend.pool_backward(pooling(), extract(dy, part, MemoryClass::workspace, rank.stream), thin_picked, to,
                               rank.stream);
  };
  const bool ahead = rank.ahead() && worth_overlap(inside, dy.box());
  if (!ahead) backward(dy.box(), extended);
  if (ahead)
    for (const Box& border : subtract(dy.box(), inside)) backward(border, extended);
  halo.start(rank);
  if (ahead) backward(inside, dx);
  halo.finish();
}

}  // namespace partita
