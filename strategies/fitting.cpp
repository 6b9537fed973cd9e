#include "partita/strategies/fitting.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/balance.hpp"

#include <algorithm>
#include <functional>
#include <optional>

namespace partita {

Holding most_held(const Plan& plan, Index limit) {
  Holding most;
  for (const auto& grid : plan.grids)
    for (const int inside : representatives(grid)) {
      const int rank = grid.first_rank() + inside;
      if (const MemoryPeak peak = plan.peak(rank); peak.total > most.memory.total) {
        most.rank = rank;
        most.memory = peak;
      }
    }
  most.missing = std::max<Index>(0, most.memory.total - limit);
  const auto& bytes = most.memory.each.bytes;
  most.most = static_cast<MemoryClass>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
  return most;
}

namespace {

/// What is run, once it is changed.
struct Variant {
  std::string change;
  Strategy strategy;
  Workload workload;
};

/// Steps of one change, the smallest first.
using Family = std::vector<Variant>;

Strategy distributed(Strategy strategy) { return strategy.update(Strategy::Update::distributed); }
Strategy recomputing(Strategy strategy) { return strategy.layer("*", {.recompute = true}); }

constexpr const char* update_text = "optimizer = \"distributed\"";
constexpr const char* recompute_text = "recompute = true in all layers";

/// The grid with its axis `changed` (or one more) so many times as long.
Grid lengthened(const Grid& grid, const std::string& changed, int times) {
  std::string text;
  bool found = false;
  for (int axis = 0; axis < grid.axes(); ++axis) {
    const bool here = grid.name(axis) == changed;
    found = found || here;
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", grid.name(axis), grid.extent(axis) * (here ? times : 1));
  }
  if (!found) text += fmt::format("{}{}={}", text.empty() ? "" : " ", changed, times);
  return Grid::parse(text);
}

class Search {
 public:
  Search(const Model& model, const Strategy& strategy, const Workload& workload, const Machine& machine,
         const KernelTimes& times, Index limit)
      : model_(model), strategy_(strategy), workload_(workload), machine_(machine), times_(times), limit_(limit) {}

  std::vector<Remedy> run() {
    const auto now = price({"", strategy_, workload_});
    std::vector<Remedy> found;
    for (const Family& family : families())
      if (const auto best = best_of(family); best && (!now || best->held < now->held)) found.push_back(*best);
    std::stable_sort(found.begin(), found.end(), [](const Remedy& a, const Remedy& b) {
      return a.missing != b.missing ? a.missing < b.missing : a.price() < b.price();
    });
    return found;
  }

 private:
  std::vector<Family> families() const {
    const Strategy both = recomputing(distributed(strategy_));
    const std::string both_text = fmt::format("{} and {}", update_text, recompute_text);
    std::vector<Family> all;
    if (strategy_.update() != Strategy::Update::distributed)
      all.push_back({{update_text, distributed(strategy_), workload_}});
    all.push_back({{recompute_text, recomputing(strategy_), workload_}});
    all.push_back({{both_text, both, workload_}});
    all.push_back(more_microbatches(strategy_, ""));
    all.push_back(more_microbatches(both, fmt::format(" with {}", both_text)));
    all.push_back(smaller_batches());
    add_ranks(all);
    return all;
  }

  Family more_microbatches(const Strategy& strategy, const std::string& with) const {
    Family family;
    const std::string kind = strategy.schedule() == "single" ? "1f1b" : strategy.schedule();
    for (Index count = 2 * strategy.microbatches(); count <= std::min<Index>(workload_.batch, 1 << 16); count *= 2) {
      Strategy cut = strategy;
      const int groups = strategy.schedule() == "single" ? 0 : strategy.groups_per_stage();
      cut.schedule(kind, static_cast<int>(count), groups);
      family.push_back({fmt::format("{} microbatches ({}){}", count, kind, with), cut, workload_});
    }
    return family;
  }

  Family smaller_batches() const {
    Family family;
    Workload smaller = workload_;
    while ((smaller.batch /= 2) > 0)
      family.push_back({fmt::format("a batch of {}", smaller.batch), strategy_, smaller});
    return family;
  }

  void add_ranks(std::vector<Family>& all) const {
    const auto& stages = strategy_.stages();
    if (strategy_.stage_count() > 1 && stages.empty()) {
      Strategy more = strategy_;
      more.stages(2 * strategy_.stage_count());
      all.push_back({{fmt::format("stages = {}", more.stage_count()), more, workload_}});
    }
    if (std::any_of(stages.begin(), stages.end(), [](const auto& stage) { return stage.grid.has_value(); })) return;
    const Grid& grid = strategy_.grid();
    for (int axis = 0; axis < grid.axes(); ++axis) all.push_back(longer(grid.name(axis), strategy_));
    if (grid.axes() == 0) all.push_back(longer("data", cutting("N@data")));
    for (const auto& [name, cut] : {std::pair("y", "H@y"), std::pair("c", "C@c")})
      if (grid.find(name) < 0) all.push_back(longer(name, cutting(cut)));
  }

  /// The strategy on longer grids.
  Family longer(const std::string& axis, const Strategy& strategy) const {
    Family family;
    for (const int times : {2, 4, 8}) {
      const Grid grid = lengthened(strategy_.grid(), axis, times);
      family.push_back({fmt::format("the grid \"{}\"", grid.print()), strategy.on(grid), workload_});
    }
    return family;
  }

  /// Every output cut once more, whatever it is cut over already. Later rules win, so all are said again, in their order.
  Strategy cutting(const std::string& cut) const {
    Strategy strategy = strategy_;
    bool said = false;
    for (const auto& each : strategy_.rules()) {
      if (!each.rule.output) continue;
      const bool lacks = each.exact() && !has(each.match, cut[0]);  // such a rule must fit
      strategy.layer(each.match, {.output = *each.rule.output + (lacks ? "" : " " + cut)}, each.place);
      said = true;
    }
    return said ? strategy : strategy.layer("*", {.output = cut});
  }

  bool has(const std::string& layer, char dim) const {
    const auto shapes = model_.shapes(1);
    for (std::size_t i = 0; i < shapes.size(); ++i)
      if (model_.layers()[i].name == layer) return shapes[i].has(dim);
    return false;
  }

  /// With boundaries, where they are left open: within the limit, or if no cut fits, as if there was none.
  Strategy placed(const Variant& variant) const {
    try {
      return balanced(model_, variant.strategy, variant.workload, machine_, times_, limit_);
    } catch (const Error&) {  // what is wrong beside the memory is wrong without a limit too
      return balanced(model_, variant.strategy, variant.workload, machine_, times_);
    }
  }

  /// Nothing where the variant cannot be bound.
  std::optional<Remedy> price(const Variant& variant) const {
    try {
      const Plan plan = bind(model_, placed(variant), variant.workload);
      const Cost cost = estimate(plan, machine_, times_);
      const Index held = cost.memory.total;
      return Remedy{variant.change, variant.workload.batch,           plan.ranks(), cost.seconds,
                    held,           std::max<Index>(0, held - limit_)};
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  std::optional<Remedy> best_of(const Family& family) const {
    std::optional<Remedy> best;
    for (const auto& variant : family) {
      const auto next = price(variant);
      if (next && (!best || next->held < best->held)) best = next;
      if (best && best->missing == 0) break;
    }
    return best;
  }

  const Model& model_;
  const Strategy& strategy_;
  const Workload& workload_;
  const Machine& machine_;
  const KernelTimes& times_;
  Index limit_;
};

}  // namespace

std::vector<Remedy> remedies(const Model& model, const Strategy& strategy, const Workload& workload,
                             const Machine& machine, const KernelTimes& times, Index limit) {
  return Search(model, strategy, workload, machine, times, limit).run();
}

}  // namespace partita
