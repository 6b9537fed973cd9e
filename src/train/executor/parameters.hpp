#pragma once

#include "partita/comm/process_grid.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "partita/train/checkpoint/checkpoint.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace partita {

/// This rank's weights, their gradients and the optimizer's state, in the plan's layouts. All plans of one model and
/// strategy share them (training, last batch, evaluation). Weights are stored in the master dtype. Trained weights are
/// stored bucket by bucket in flat buffers, and so are their gradients and the state.
class Parameters {
 public:
  /// Draws the weights from the seed and the global index, so that they are the same in every layout. Without training,
  /// there are no gradients. `world_rank` holds the weights of its stage.
  Parameters(const Plan& plan, int world_rank, std::uint64_t seed, const std::shared_ptr<Allocator>& allocator);

  /// One layer's weights on this rank.
  struct Layer {
    std::vector<DistTensor> master;  ///< one per weight, as it rests (LayerBinding::rest)
    std::vector<Tensor> rounded;     ///< the master itself, or a copy in the compute dtype
    std::vector<Tensor> compute;     ///< read by kernels: `rounded`, or what was gathered; empty while it is not
    std::vector<Tensor> gradient;    ///< one per trained weight, in Plan::gradient_dtype
  };
  /// One of the plan's buckets on this rank.
  struct Flat {
    std::vector<Index> offsets;  ///< as Plan::offsets
    Interval share;              ///< as Plan::share
    Tensor w, dw;                ///< the whole bucket: w in the master dtype, dw in Plan::gradient_dtype
    std::vector<Tensor> state;   ///< this rank's share of each of Optimizer::states, master dtype
  };
  Layer& layer(std::size_t i) { return layers_[i]; }
  const Flat& bucket(std::size_t i) const { return buckets_[i]; }

  /// Returns the weights (with `optimizer` also its state) with their names in a checkpoint, e.g. "conv1/weight",
  /// "conv1/weight.velocity". A state of which each rank holds a share is gathered. Then the call is collective: every
  /// rank of `grid` calls it.
  std::vector<NamedTensor> named(const Plan& plan, const ProcessGrid& grid, bool optimizer) const;
  /// Returns the tensors of all ranks, in the same order on every rank. A tensor of another stage has an empty local
  /// part. If there are two replicas, the list has the first.
  std::vector<NamedTensor> named_everywhere(const Plan& plan, const ProcessGrid& grid, int world_rank) const;
  /// Copies this rank's share of the states from `named`, after a load.
  void keep_state(const Plan& plan, const std::vector<NamedTensor>& named);
  /// Rounds the masters to the copies that kernels read, after it has given the second copy of a table on this rank the
  /// values of the first, which alone is loaded. Call it after an update or a load.
  void refresh(Stream stream);

 private:
  Tensor whole_state(const Bucket& bucket, const Flat& flat, const Tensor& share, const ProcessGrid& grid) const;

  /// True if this rank holds the weight, a copy of a table, twice: named() has the embedding's.
  bool is_second_copy(const Plan& plan, std::size_t layer, std::size_t weight) const;

  std::vector<Layer> layers_;
  std::vector<Flat> buckets_;
  std::vector<std::pair<Tensor, Tensor>> copies_;  // tables, and their second copies on this rank
};

}  // namespace partita
