#pragma once

#include "partita/comm/process_grid.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "partita/train/run/checkpoint.hpp"

#include <memory>
#include <vector>

namespace partita {

/// This rank's weights, their gradients and the optimizer's state, in the plan's layouts: shared by every plan of one
/// model and strategy (training, last batch, evaluation). Weights are kept in the master dtype; those that are trained
/// lie bucket by bucket in flat buffers, and so do their gradients and the state.
class Parameters {
 public:
  /// Draws the weights by seed and global index: the same numbers under every layout. Without training there are no gradients.
  /// `world_rank` has those of its stage.
  Parameters(const Plan& plan, int world_rank, std::uint64_t seed, const std::shared_ptr<Allocator>& allocator);

  /// One layer's weights on this rank.
  struct Layer {
    std::vector<DistTensor> master;  ///< one a weight
    std::vector<Tensor> compute;     ///< what kernels read: the master itself, or rounded to the compute dtype
    std::vector<Tensor> gradient;    ///< one a trained weight, compute dtype
  };
  /// One of the plan's buckets on this rank.
  struct Flat {
    std::vector<Index> offsets;  ///< as Plan::offsets
    Interval share;              ///< as Plan::share
    Tensor w, dw;                ///< all of it, master and compute dtype
    std::vector<Tensor> state;   ///< the share of each of Optimizer::states, master dtype
  };
  Layer& layer(std::size_t i) { return layers_[i]; }
  const Flat& bucket(std::size_t i) const { return buckets_[i]; }

  /// Weights (and with `optimizer` its state) with their names in a checkpoint, "conv1/weight", "conv1/weight.velocity".
  /// A state of which ranks hold shares is gathered: collective over the grid then.
  std::vector<NamedTensor> named(const Plan& plan, const ProcessGrid& grid, bool optimizer) const;
  /// The names of all ranks, in one order: the others' with an empty local part. Of two replicas the first.
  std::vector<NamedTensor> named_everywhere(const Plan& plan, const ProcessGrid& grid, int world_rank) const;
  /// Takes over this rank's share of the states in `named`, after a load.
  void keep_state(const Plan& plan, const std::vector<NamedTensor>& named);
  /// Rounds the masters to what kernels read; after an update or a load.
  void refresh(DType dtype);

 private:
  Tensor whole_state(const Bucket& bucket, const Flat& flat, const Tensor& share, const ProcessGrid& grid) const;

  std::vector<Layer> layers_;
  std::vector<Flat> buckets_;
};

}  // namespace partita
