#include "src/cli/verbs/plan/reasons.hpp"

#include "partita/strategies/plan/bind.hpp"
#include "src/cli/output/compared.hpp"
#include "src/cli/verbs/plan/baselines.hpp"
#include "strategies/cost/worst_ranks.hpp"
#include "strategies/planner/layout_reasons.hpp"
#include "strategies/planner/strategy_kind.hpp"

#include <algorithm>
#include <cmath>

namespace partita::cli {

namespace {

/// Prints the layouts of the best strategy, and what a step costs with the second-best layout of each group of layers.
void print_layouts(const Planned& best, const Model& model, const Workload& workload, const MachineFiles& files,
                   Index limit) {
  const auto reasons = layout_reasons(model, best.strategy, workload, files.machine, files.times);
  if (reasons.empty()) return;  // on one rank
  fmt::print("\n{:<24} {:>6}  {:<32} {}\n", "layout", "layers", "from and to", "the second best for them");
  for (const auto& [layout, layers, second, cost, with] : reasons) {
    std::string text = "none of the others can run";
    if (!second.empty()) {
      const bool fits = limit == 0 || fullest_rank(bind(model, with, workload)).memory.total <= limit;
      text = fmt::format("{}: {}{}", second, difference(cost, best.cost), fits ? "" : "; does not fit");
      if (cost.seconds < best.cost.seconds && kind_of(model, with) != kind_of(model, best.strategy))
        text += fmt::format("; this is of another kind ({})", kind_of(model, with).print());
    }
    fmt::print("{:<24} {:>6}  {:<32} {}\n", layout, layers.size(),
               layers.size() == 1 ? layers.front() : fmt::format("{} ... {}", layers.front(), layers.back()), text);
  }
}

/// Prints the plain strategies, and adds those that fit to `all`.
void print_plain(const std::vector<Baseline>& plain, const Planned& best, const Model& model, std::vector<Named>& all) {
  fmt::print("\n{:<24} {:>10} {:>10} {:>10} {:>10}  {}\n", "beside the best", "ms/step", "longer", "MiB held",
             "MiB sent", "description");
  for (const auto& [name, strategy, cost, fits, why] : plain) {
    if (!strategy) {
      fmt::print("{:<24} {:>10}  {}\n", name, "-", why.empty() ? "no such grid" : why);
      continue;
    }
    fmt::print("{:<24} {:>10.3f} {:>8.1f} % {:>10.1f} {:>10.1f}  {}{}\n", name, cost.seconds * 1e3,
               100 * (cost.seconds / best.cost.seconds - 1), static_cast<double>(cost.memory.total) / (1 << 20),
               cost.sent / (1 << 20), describe(model, *strategy), fits ? "" : "; does not fit");
    if (fits) all.push_back({name, &*strategy});
  }
}

}  // namespace

std::string describe(const Model& model, const Strategy& strategy) {
  const auto grids = strategy.grids();
  std::string microbatches;
  if (strategy.microbatches() > 1) microbatches = fmt::format(", {} microbatches", strategy.microbatches());
  if (grids.size() > 1) microbatches += fmt::format(" ({})", name(strategy.schedule()));
  const auto& rules = strategy.rules();
  const bool recomputing =
      std::any_of(rules.begin(), rules.end(), [](const auto& r) { return r.rule.recompute == true; });
  return fmt::format("{}: {}grid \"{}\"{}{}{}{}, {}", kind_of(model, strategy).print(),
                     grids.size() > 1 ? fmt::format("{} stages, each ", grids.size()) : "", strategy.grid().print(),
                     microbatches,
                     strategy.optimizer_state() == Strategy::OptimizerState::sharded ? ", sharded optimizer" : "",
                     strategy.shards_weights() ? ", sharded weights" : "", recomputing ? ", recomputation" : "",
                     counted(static_cast<Index>(rules.size()), "rule"));
}

std::string difference(const StepCost& with, const StepCost& without) {
  constexpr std::size_t most_parts = 4;
  auto parts = named_parts(with.parts);
  const auto less = named_parts(without.parts);
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].second -= less[i].second;
  std::erase_if(parts, [&](const auto& part) { return std::abs(part.second) <= 1e-3 * without.seconds; });
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return std::abs(a.second) > std::abs(b.second); });
  parts.resize(std::min(parts.size(), most_parts));
  const double longer = 100 * (with.seconds / without.seconds - 1);
  std::string text = std::abs(longer) < 0.05 ? "0.0 %" : fmt::format("{:+.1f} %", longer);
  for (const auto& [part, seconds] : parts) text += fmt::format(", {} {:+.3f} ms", part, seconds * 1e3);
  return text;
}

void print_reasons(const Search& search, const std::vector<std::string>& names, const Model& model,
                   const Workload& workload, const MachineFiles& files, int ranks, Index limit) {
  const std::vector<Planned>& found = search.found;
  const Planned& best = found.front();
  print_layouts(best, model, workload, files, limit);
  const auto plain = baselines(model, workload, files, ranks, limit, search);
  std::vector<Named> all;
  for (std::size_t i = 0; i < found.size(); ++i) all.push_back({names[i], &found[i].strategy});
  print_plain(plain, best, model, all);
  fmt::print("\nif the machine is another\n");
  for (const auto& line : sensitivity(all, model, workload, files)) fmt::print("{}\n", line);
}

}  // namespace partita::cli
