#include "strategies/cost/plan_terms.hpp"

#include "strategies/cost/build_terms.hpp"
#include "strategies/cost/symmetry.hpp"
#include "strategies/plan/layer_ops.hpp"

#include <algorithm>
#include <map>
#include <memory_resource>
#include <unordered_map>
#include <utility>
#include <vector>

namespace partita {

namespace {

/// The share of a replica's microbatches that are of the larger size.
double share_of_larger_microbatches(const Plan& plan, int replica) {
  const int all = plan.microbatches_of(replica);
  if (plan.remainder_layers.empty() || all == 0) return 1;
  int count = 0;
  for (int j = 0; j < plan.microbatches; ++j)
    if (plan.replica_of(j) == replica && plan.samples(j).extent() == plan.samples(0).extent()) ++count;
  return static_cast<double>(count) / all;
}

/// Fills the lists of PlanTerms.
class Grouping {
 public:
  Grouping(PlanTerms& terms, const Plan& plan, const Machine& machine, const KernelTimes& times, KnownLayerCosts* known,
           Examined examined)
      : terms_(terms),
        plan_(plan),
        known_(known),
        examined_(examined),
        splits_backward_(splits_backward(plan.schedule)),
        actions_(microbatch_actions(plan.workload.training, splits_backward_)),
        builder_(plan, machine, times, splits_backward_, nullptr, examined) {}

  void run() {
    std::vector<std::optional<int>>
        sums;  // by layer: both replicas wait for each other, so these are the same for both
    for (int i = 0; i < static_cast<int>(plan_.layers.size()); ++i) sums.push_back(add_sums(i));
    for (int replica = 0; replica < plan_.replicas(); ++replica)
      terms_.replicas.push_back(replica_terms(replica, sums));
    terms_.tables = std::move(builder_).take();
  }

 private:
  using Layer = PlanTerms::Layer;
  using Group = PlanTerms::Group;
  using Transfer = PlanTerms::Transfer;
  using Replica = PlanTerms::Replica;

  /// A layer and the index of its terms.
  struct KnownLayer {
    const LayerPlan* layer;
    int stage, number;
  };
  /// The index in PlanTerms::distinct of layers that share the bindings of both sizes.
  struct KnownBinding {
    const LayerBinding* smaller;
    bool recompute;
    LayerPlan::Fusion fusion;
    int number;
  };
  struct SummedBucket {
    AxisSet axes;
    int other_copy;
    std::vector<std::pair<const LayerBinding*, int>> weights;
    auto operator<=>(const SummedBucket&) const = default;
  };
  /// All that decides what a layer sums once per step.
  struct SumsOfLayer {
    int stage;
    const LayerBinding* binding;
    std::vector<SummedBucket> buckets;
    auto operator<=>(const SumsOfLayer&) const = default;
  };
  /// The terms made so far. It holds many small objects that are freed together, so they share one memory resource.
  struct TermsCache {
    std::pmr::monotonic_buffer_resource memory{1 << 14};  // bytes; enough for about a hundred distinct layers
    std::pmr::unordered_multimap<const LayerBinding*, KnownBinding> bindings{&memory};
    std::pmr::map<std::pair<int, std::optional<int>>, int> sizes{&memory};  // terms of both sizes -> index in distinct
    std::pmr::unordered_map<std::size_t, std::pmr::vector<KnownLayer>> layers{&memory};  // by cost_hash
  };

  Replica replica_terms(int number, const std::vector<std::optional<int>>& sums) {
    Replica replica;
    replica.groups.resize(plan_.stage_of_group.size());
    const double larger_share = share_of_larger_microbatches(plan_, number);
    TermsCache cache;
    const auto& layers = plan_.layers_of(number, false);
    for (int i = 0; i < static_cast<int>(layers.size()); ++i) {
      const LayerPlan& layer = layers[i];
      const int distinct = distinct_number(cache, i, number, larger_share);
      replica.groups[layer.group].layers.push_back({i, distinct, sums[i]});
      add_transfers(layer, i, number, replica.transfers);
    }
    for (std::size_t i = 0; i < replica.groups.size(); ++i) {
      Group& group = replica.groups[i];
      group.counts = count_distinct(group.layers);
      order_layers(group);
      if (plan_.workload.training) group.update = builder_.update(static_cast<int>(i));
    }
    return replica;
  }

  /// Adds the transfers of a layer's output to other stages, and of its gradient back.
  void add_transfers(const LayerPlan& layer, int index, int replica, std::vector<Transfer>& transfers) {
    using enum StepOp::Kind;
    for (const auto& boundary : layer.sends_to_stages)
      each_transfer_op(layer, index, send_output, boundary.group, [&](const StepOp& op) {
        Transfer transfer{layer.group, boundary.group, builder_.transfer(op, replica), {}};
        const auto come_back = [&](const StepOp& sent) { transfer.gradient = builder_.transfer(sent, replica); };
        if (plan_.workload.training) each_transfer_op(layer, index, send_gradient, boundary.group, come_back);
        transfers.push_back(std::move(transfer));
      });
  }

  /// Brings the layers of a group, which are in model order, into the order of the last action of a microbatch.
  void order_layers(Group& group) const {
    const auto layers = std::exchange(group.layers, {});
    each_layer_of(actions_.back(), 0, static_cast<int>(layers.size()),
                  [&](int i) { group.layers.push_back(layers[i]); });
  }

  /// Returns the index of the gradient sums that a layer completes, if it completes any.
  std::optional<int> add_sums(int layer) {
    bool completes = false;
    const LayerPlan& bound = plan_.layers[layer];
    if (plan_.workload.training)
      each_end_op(bound, layer, actions_.back(), true,
                  [&](const StepOp& op) { completes |= op.kind == StepOp::Kind::sum_gradients; });
    if (!completes) return std::nullopt;
    SumsOfLayer what{plan_.stage_of(layer), bound.binding.get(), {}};
    for (const Bucket& bucket : completed_by(plan_.buckets, layer)) {
      auto& weights = what.buckets.emplace_back(SummedBucket{bucket.axes, bucket.other_copy, {}}).weights;
      for (const auto& [of, weight] : bucket.entries) weights.emplace_back(plan_.layers[of].binding.get(), weight);
    }
    const auto [found, fresh] = sums_.try_emplace(std::move(what));
    if (!fresh) return found->second;
    auto sums = builder_.sums(layer);
    if (sums.empty()) return std::nullopt;
    terms_.sums.push_back(std::move(sums));
    return found->second = static_cast<int>(terms_.sums.size()) - 1;
  }

  static std::vector<std::pair<int, int>> count_distinct(const std::vector<Layer>& layers) {
    std::map<int, int> counts;
    for (const Layer& layer : layers) ++counts[layer.distinct];
    return {counts.begin(), counts.end()};
  }

  /// Returns the layer's index in PlanTerms::distinct. Most layers share their bindings, and thus their terms, with
  /// others.
  int distinct_number(TermsCache& cache, int index, int replica, double larger_share) {
    const auto i = static_cast<std::size_t>(index);
    const LayerPlan& layer = plan_.layers_of(replica, false)[i];
    const LayerBinding* smaller = larger_share == 1 ? nullptr : plan_.layers_of(replica, true)[i].binding.get();
    const auto [begin, end] = cache.bindings.equal_range(layer.binding.get());
    const auto bound = std::find_if(begin, end, [&](const auto& each) {
      return each.second.smaller == smaller && each.second.recompute == layer.recompute &&
             each.second.fusion == layer.fusion();
    });
    if (bound != end && layer.sends_to_stages.empty()) return bound->second.number;
    const int larger = terms_number(cache, index, replica, false);
    const std::pair sizes{larger,
                          smaller == nullptr ? std::nullopt : std::optional(terms_number(cache, index, replica, true))};
    const auto [found, inserted] = cache.sizes.try_emplace(sizes, static_cast<int>(terms_.distinct.size()));
    if (inserted) terms_.distinct.push_back({sizes.first, sizes.second, larger_share});
    if (layer.sends_to_stages.empty())
      cache.bindings.insert({layer.binding.get(), {smaller, layer.recompute, layer.fusion(), found->second}});
    return found->second;
  }

  /// Returns the index of the layer's terms for one size of microbatch. Layers of equal cost share one.
  int terms_number(TermsCache& cache, int index, int replica, bool of_remainder) {
    const LayerPlan& layer = plan_.layers_of(replica, of_remainder)[index];
    const int stage = plan_.stage_of(index, replica);
    auto& candidates = cache.layers[cost_hash(layer)];
    for (const KnownLayer& each : candidates)
      if (each.stage == stage && equivalent_cost(layer, *each.layer)) return each.number;
    const bool known = known_ != nullptr;
    known ? terms_.known_costs.push_back(known_->of(plan_, index, of_remainder, replica, splits_backward_, examined_))
          : terms_.layers.push_back(builder_.layer(index, of_remainder, replica));
    const auto number = static_cast<int>(known ? terms_.known_costs.size() : terms_.layers.size()) - 1;
    candidates.push_back({&layer, stage, number});
    return number;
  }

  PlanTerms& terms_;
  const Plan& plan_;
  KnownLayerCosts* known_;
  Examined examined_;
  bool splits_backward_;
  std::span<const Action::Kind> actions_;  // of a microbatch
  CostTermBuilder builder_;
  std::map<SumsOfLayer, std::optional<int>> sums_;  // indices in PlanTerms::sums
};

}  // namespace

PlanTerms::PlanTerms(const Plan& plan, const Machine& machine, const KernelTimes& times, KnownLayerCosts* known,
                     Examined examined) {
  Grouping(*this, plan, machine, times, known, examined).run();
}

}  // namespace partita
