#include "src/cli/verbs/plan/baselines.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/cost/cost_formula.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/planner/stage_partition.hpp"
#include "strategies/cost/worst_ranks.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace partita::cli {

namespace {

constexpr int most_parts = 64;  // ranks along an axis beside the samples
constexpr double factor = 1.5;

Strategy on_grid(int data, const std::string& axis, int parts, const std::string& dimension) {
  Strategy strategy(parts > 1 ? fmt::format("data={} {}={}", data, axis, parts) : fmt::format("data={}", data));
  return strategy.layer("*", {.output = parts > 1 ? fmt::format("N@data {}@{}", dimension, axis) : "N@data"});
}

/// Prices strategies of one kind and keeps the fastest.
class BaselineKind {
 public:
  BaselineKind(std::string name, const Model& model, const Workload& workload, const MachineFiles& files, Index limit)
      : model_(model), workload_(workload), files_(files), limit_(limit) {
    best_.name = std::move(name);
  }

  void offer(const Strategy& open) {
    try {
      const Strategy strategy = place_stages_nearest(model_, open, workload_, files_.machine, files_.times, limit_);
      const Plan plan = bind(model_, strategy, workload_);
      const CostFormula formula(plan, files_.machine, files_.times);
      const double seconds = formula.step(files_.machine).seconds;
      const bool slower = best_.strategy && seconds >= best_.cost.seconds;
      if (slower && best_.fits) return;
      const bool fits = limit_ == 0 || fullest_rank(plan).memory.total <= limit_;
      if (!fits && (slower || (best_.strategy && best_.fits))) return;
      best_.cost = formula.cost(files_.machine);
      best_.strategy = strategy;
      best_.fits = fits;
    } catch (const Error& error) {  // it cannot run: the model has too few layers, or lacks the dimension
      if (best_.why.empty()) best_.why = error.what();
    }
  }
  const Baseline& best() const { return best_; }

 private:
  const Model& model_;
  const Workload& workload_;
  const MachineFiles& files_;
  Index limit_;
  Baseline best_;
};

/// Returns the fastest pipeline whose stages shard samples alone, of all numbers of stages and microbatches. If the
/// search had no time for it, says so.
Baseline samples_and_stages(const Model& model, const Workload& workload, const MachineFiles& files, int ranks,
                            Index limit, const Search& search) {
  Baseline best{.name = "samples and stages", .strategy = {}};
  const auto take = [&](const Planned& planned) {
    best.strategy = planned.strategy;
    best.cost = planned.cost;
  };
  if (search.plain_pipeline) {
    take(*search.plain_pipeline);
    return best;
  }
  if (search.ended_early) {
    best.why = "--time-limit left no time to search it";
    return best;
  }
  PlannerOptions options{.ranks = ranks,
                         .memory_limit = limit > 0 ? limit : std::numeric_limits<Index>::max(),
                         .best = 1,
                         .most_split = 1,
                         .least_stages = 2};
  try {
    take(plan_strategies(model, workload, files.machine, files.times, options).front());
  } catch (const NothingFits& error) {
    take(error.smallest);
    best.fits = false;
  } catch (const Error& error) {
    best.why = error.what();
  }
  return best;
}

/// A change of the machine, in words.
struct Change {
  std::string what;
  std::function<void(Machine&)> make;
};

std::vector<Change> changes() {
  std::vector<Change> all;
  const auto add = [&](const std::string& what, auto&& scale) {
    all.push_back({fmt::format("{} x {}", what, factor), [scale](Machine& machine) { scale(machine, factor); }});
    all.push_back({fmt::format("{} / {}", what, factor), [scale](Machine& machine) { scale(machine, 1 / factor); }});
  };
  add("bandwidth", [](Machine& machine, double by) {
    for (Level& level : machine.levels) level.bandwidth.value *= by;
  });
  add("latency", [](Machine& machine, double by) {
    for (Level& level : machine.levels) level.latency.value *= by;
  });
  add("arithmetic", [](Machine& machine, double by) {
    machine.arithmetic.value *= by;
    for (auto& [type, peak] : machine.peaks) peak.value *= by;
  });
  return all;
}

}  // namespace

std::vector<Baseline> baselines(const Model& model, const Workload& workload, const MachineFiles& files, int ranks,
                                Index limit, const Search& search) {
  const auto kind = [&](const std::string& name) { return BaselineKind(name, model, workload, files, limit); };
  const auto each_divisor = [&](const std::function<void(int)>& visit) {
    for (int parts = 2; parts <= std::min(ranks, most_parts); ++parts)
      if (ranks % parts == 0) visit(parts);
  };
  BaselineKind samples = kind("samples alone"), space = kind("samples and space"),
               channels = kind("samples and channels");
  samples.offer(on_grid(ranks, "", 1, ""));
  const auto shape = model.shapes(1).front();
  each_divisor([&](int parts) {
    if (shape.has('H')) space.offer(on_grid(ranks / parts, "y", parts, "H"));
    if (shape.has('L')) space.offer(on_grid(ranks / parts, "seq", parts, "L"));
    channels.offer(on_grid(ranks / parts, "c", parts, "C"));
  });
  return {samples.best(), space.best(), channels.best(),
          samples_and_stages(model, workload, files, ranks, limit, search)};
}

std::vector<std::string> sensitivity(const std::vector<Named>& strategies, const Model& model, const Workload& workload,
                                     const MachineFiles& files) {
  std::vector<Plan> plans;
  plans.reserve(strategies.size());
  for (const auto& each : strategies) plans.push_back(bind(model, *each.strategy, workload));
  std::vector<CostFormula> formulas;
  for (const Plan& plan : plans) formulas.emplace_back(plan, files.machine, files.times);
  std::vector<std::string> lines;
  for (const auto& [what, make] : changes()) {
    Machine machine = files.machine;
    make(machine);
    std::size_t best = 0;
    std::vector<double> seconds;
    for (const CostFormula& formula : formulas) seconds.push_back(formula.step(machine).seconds);
    for (std::size_t i = 1; i < seconds.size(); ++i)
      if (seconds[i] < seconds[best]) best = i;
    lines.push_back(
        best == 0
            ? fmt::format("{:<18} {} stays the fastest, {:.3f} ms", what, strategies[0].name, 1e3 * seconds[0])
            : fmt::format("{:<18} {} is the fastest, {:.3f} ms; {} takes {:.1f} % longer", what, strategies[best].name,
                          1e3 * seconds[best], strategies[0].name, 100 * (seconds[0] / seconds[best] - 1)));
  }
  return lines;
}

}  // namespace partita::cli
