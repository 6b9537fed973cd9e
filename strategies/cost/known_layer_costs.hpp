#pragma once

#include "partita/strategies/cost/estimate.hpp"
#include "strategies/cost/build_terms.hpp"

#include <cstddef>
#include <unordered_map>
#include <vector>

namespace partita {

/// What layers cost for a microbatch on one machine, for the plans of a search: these have most of their layers in
/// common.
class KnownLayerCosts {
 public:
  /// @pre Both arguments outlive it.
  KnownLayerCosts(const Machine& machine, const KernelTimes& times) : machine_(machine), times_(times) {}

  /// Returns what a layer of a plan costs in a replica, in the larger microbatch or in the remainder; `split` as in
  /// CostTermBuilder. It costs at least as much as this if only its first and an inner rank are examined.
  LayerCost of(const Plan& plan, int index, bool of_remainder, int replica, bool split, Examined examined);

 private:
  static constexpr int most = 1 << 13;  // of some 10 KiB each
  struct Known {
    LayerPlan layer;
    bool split;
    int ranks;  // of the plan, which may share their memory
    Examined examined;
    LayerCost cost;
  };
  const Machine& machine_;
  const KernelTimes& times_;
  std::unordered_map<std::size_t, std::vector<Known>> known_;  // by cost_hash
  int count_ = 0;
};

}  // namespace partita
