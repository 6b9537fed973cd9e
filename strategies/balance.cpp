#include "partita/strategies/balance.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/generators.hpp"
#include "price.hpp"

#include <algorithm>
#include <functional>
#include <limits>

namespace partita {

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// The strategy without its stages: one runs all layers.
Strategy in_one_stage(const Strategy& strategy) {
  Strategy alone = strategy;
  return alone.stages(1).schedule("single", 1);
}

/// What a group from one layer to another takes, and what a cut costs.
class Layers {
 public:
  Layers(const Plan& plan, const Machine& machine, const KernelTimes& times) : seconds_{0}, kept_{0}, under_way_{0} {
    const Price price(plan, machine, times, false);
    const auto count = static_cast<int>(plan.layers.size());
    for (int i = 0; i < count; ++i) {
      const LayerCost cost = price.layer(i, false);
      const MemoryUse use = plan.memory(i, 0);
      seconds_.push_back(seconds_.back() + cost.forward.total() + cost.backward_data.total() +
                         cost.backward_filter.total());
      kept_.push_back(kept_.back() + use[MemoryClass::weights] + use[MemoryClass::gradients] +
                      use[MemoryClass::optimizer]);
      under_way_.push_back(under_way_.back() + use[MemoryClass::activations] + use[MemoryClass::halos]);
    }
    const Level& outer = machine.levels.back();
    for (int cut = 0; cut <= count; ++cut) {
      double bytes = 0;
      for (int i = 0; i < cut; ++i)
        if (crosses(plan, i, cut))
          bytes += static_cast<double>(plan.layers[static_cast<std::size_t>(i)].y.owned(0).volume());
      bytes *= static_cast<double>(size_of(plan.workload.dtype));
      crossing_.push_back(bytes == 0 ? 0 : outer.latency.value + bytes / outer.bandwidth.value);
    }
    held_up_ = 2 * (1 - outer.overlap.value);  // there, and the gradient back
  }

  int count() const { return static_cast<int>(seconds_.size()) - 1; }
  /// Of the layers from `first` up to `end`.
  double seconds(int first, int end) const {
    return at(seconds_, end) - at(seconds_, first) + held_up_ * (crossing(first) + crossing(end));
  }
  double crossing(int cut) const { return crossing_[static_cast<std::size_t>(cut)]; }
  Index bytes(int first, int end, int microbatches) const {
    return at(kept_, end) - at(kept_, first) + microbatches * (at(under_way_, end) - at(under_way_, first));
  }

 private:
  template <class T>
  static T at(const std::vector<T>& sums, int i) {
    return sums[static_cast<std::size_t>(i)];
  }
  static bool crosses(const Plan& plan, int layer, int cut) {
    for (std::size_t i = static_cast<std::size_t>(cut); i < plan.layers.size(); ++i)
      if (std::count(plan.layers[i].inputs.begin(), plan.layers[i].inputs.end(), layer) > 0) return true;
    return false;
  }

  std::vector<double> seconds_;          // sums up to a layer
  std::vector<Index> kept_, under_way_;  // bytes for good, and of a microbatch
  std::vector<double> crossing_;         // seconds of a cut before a layer
  double held_up_ = 0;
};

/// Microbatches that each group holds at most, in the schedule's order.
std::vector<int> under_way(const Strategy& strategy, int groups, int microbatches) {
  ScheduleRequest request;
  request.kind = strategy.schedule() == "single" ? "1f1b" : strategy.schedule();
  request.stages = strategy.stage_count();
  request.microbatches = microbatches;
  request.groups_per_stage = strategy.groups_per_stage();
  request.filter_memory = kept_for_filter;
  const Schedule schedule = generate(request);
  std::vector<int> most;
  for (int group = 0; group < groups; ++group) {
    std::vector<GroupMemory> memory(static_cast<std::size_t>(groups), GroupMemory{0, 0, 0});
    memory[static_cast<std::size_t>(group)] = {1, kept_for_filter, 0};
    const auto peaks = peak_memory(schedule, memory);
    most.push_back(static_cast<int>(*std::max_element(peaks.begin(), peaks.end())));
  }
  return most;
}

/// Where groups end, for the least that the groups' costs combine to; cost(group, first, end) is `never` for a group that cannot
/// be. Nothing if there is no cut.
template <class Cost, class Combine>
std::vector<int> best_cut(int layers, int groups, const Cost& cost, const Combine& combine) {
  struct Best {
    double cost = never;
    int first = 0;  // of the last group
  };
  std::vector<std::vector<Best>> best(static_cast<std::size_t>(groups) + 1,
                                      std::vector<Best>(static_cast<std::size_t>(layers) + 1));
  const auto of = [&](int group, int end) -> Best& {
    return best[static_cast<std::size_t>(group)][static_cast<std::size_t>(end)];
  };
  of(0, 0).cost = 0;
  for (int g = 1; g <= groups; ++g)
    for (int end = g; end <= layers; ++end)
      for (int first = g - 1; first < end; ++first)
        if (of(g - 1, first).cost < never)
          if (const double with = combine(of(g - 1, first).cost, cost(g - 1, first, end)); with < of(g, end).cost)
            of(g, end) = {with, first};
  std::vector<int> ends;
  if (of(groups, layers).cost == never) return ends;
  for (int g = groups, end = layers; g > 0; end = of(g--, end).first) ends.push_back(end);
  std::reverse(ends.begin(), ends.end());
  return ends;
}

/// Where groups end. `held[g]` microbatches are held by group g.
std::vector<int> cut(const Layers& layers, const std::vector<int>& held, Index limit) {
  const auto groups = static_cast<int>(held.size());
  const auto seconds = [&](int g, int first, int end) {
    const bool fits = limit == 0 || layers.bytes(first, end, held[static_cast<std::size_t>(g)]) <= limit;
    return fits ? layers.seconds(first, end) : never;
  };
  const auto ends = best_cut(layers.count(), groups, seconds, [](double a, double b) { return std::max(a, b); });
  double slowest = 0;
  for (std::size_t g = 0; g < ends.size(); ++g)
    slowest = std::max(slowest, layers.seconds(g == 0 ? 0 : ends[g - 1], ends[g]));
  // Of those that are as good, the one that sends least.
  const auto sends = [&](int g, int first, int end) {
    return seconds(g, first, end) <= slowest ? layers.crossing(end) : never;
  };
  return ends.empty() ? ends : best_cut(layers.count(), groups, sends, std::plus<>());
}

Strategy with_ends(const Strategy& strategy, const std::vector<std::string>& names, const std::vector<int>& ends) {
  Strategy named = strategy;
  named.stages(1);
  int first = 0;
  for (const int end : ends) {
    named.stage({names[static_cast<std::size_t>(first)], names[static_cast<std::size_t>(end) - 1]});
    first = end;
  }
  return named;
}

}  // namespace

Strategy balanced(const Model& model, const Strategy& strategy, const Workload& workload, const Machine& machine,
                  const KernelTimes& times, Index limit) {
  if (strategy.stage_count() == 1) return strategy;
  const auto groups = static_cast<int>(strategy.places().size()), layers = static_cast<int>(model.layers().size());
  if (groups > layers)
    fail("the model '{}' has {} layers, too few for {} stages of {} {} of layers each", model.name(), layers,
         strategy.stage_count(), strategy.groups_per_stage(), strategy.groups_per_stage() == 1 ? "group" : "groups");
  const auto microbatches = static_cast<int>(std::min<Index>(strategy.microbatches(), workload.batch));
  Workload one = workload;
  one.batch = (workload.batch + microbatches - 1) / microbatches;
  const Plan plan = bind(model, in_one_stage(strategy), one);
  // A stage's groups, and those of two replicas, share what its ranks may hold evenly.
  const int shares = groups / strategy.stage_count() * (strategy.schedule() == "chimera" ? 2 : 1);
  std::vector<std::string> names;
  for (const auto& layer : model.layers()) names.push_back(layer.name);
  const auto held =
      limit > 0 ? under_way(strategy, groups, microbatches) : std::vector<int>(static_cast<std::size_t>(groups), 1);
  const Index share = limit > 0 ? std::max<Index>(limit / shares, 1) : 0;
  const auto ends = cut(Layers(plan, machine, times), held, share);
  if (ends.empty())
    fail(
        "no way to cut the model '{}' into {} stages fits {} a rank; use more stages or ranks, or give layers "
        "recompute = true",
        model.name(), strategy.stage_count(), print_bytes(limit));
  return with_ends(strategy, names, ends);
}

Strategy with_boundaries(const Strategy& strategy, const std::vector<LayerPlan>& layers) {
  std::vector<std::string> names;
  std::vector<int> ends;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    names.push_back(layers[i].name);
    if (i + 1 == layers.size() || layers[i + 1].group != layers[i].group) ends.push_back(static_cast<int>(i) + 1);
  }
  return with_ends(strategy, names, ends);
}

}  // namespace partita
