#include "partita/distconv/pool.hpp"

namespace partita {

SpatialPool::SpatialPool(PoolKind kind, std::vector<Window> windows, bool count_padding, const Halo& x, int rank)
    : kind_(kind), windows_(std::move(windows)), count_padding_(count_padding), halo_(x, rank) {}

void SpatialPool::forward(const RankContext& rank, const Tensor& x, const Tensor& y, const Tensor& picked) const {
  compute_with_halo(halo_, windows_, x, y.box(), rank, [&](const Tensor& from, const Box& part) {
    rank.backend.pool_forward(pooling(), from, y, picked, part, rank.stream);
  });
}

void SpatialPool::backward(const RankContext& rank, const Tensor& dy, const Tensor& picked, const Tensor& dx) const {
  compute_with_halo_return(halo_, windows_, dy.box(), dx, rank, [&](const Box& part, const Tensor& to) {
    rank.backend.pool_backward(pooling(), dy, picked, to, part, rank.stream);
  });
}

}  // namespace partita
