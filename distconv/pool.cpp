#include "partita/distconv/pool.hpp"

namespace partita {

SpatialPool::SpatialPool(PoolKind kind, std::vector<Window> windows, bool count_padding, const Halo& x, int rank)
    : kind_(kind),
      windows_(std::move(windows)),
      count_padding_(count_padding),
      plan_(x.transfer(rank)),
      needed_(x.needed[static_cast<std::size_t>(rank)]) {}

void SpatialPool::forward(const RankContext& rank, const Tensor& x, const Tensor& y, const Tensor& picked) const {
  const Tensor extended = extended_for(x, needed_);
  TransferPlan plan = plan_;
  if (extended.data() == x.data()) plan.locals.clear();
  Exchange(plan, x, extended, rank.comm, rank.stream).finish();
  rank.backend.pool_forward(pooling(), extended, y, picked, rank.stream);
}

void SpatialPool::backward(const RankContext& rank, const Tensor& dy, const Tensor& picked, const Tensor& dx) const {
  const Tensor extended = extended_for(dx, needed_);
  rank.backend.pool_backward(pooling(), dy, picked, extended, rank.stream);
  TransferPlan plan = plan_;
  if (extended.data() == dx.data()) plan.locals.clear();
  Exchange::adjoint(plan, extended, dx, rank.comm, rank.stream).finish();
}

}  // namespace partita
