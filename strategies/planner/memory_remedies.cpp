#include "partita/strategies/planner/memory_remedies.hpp"

#include "layouts/notation.hpp"
#include "partita/base/error.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/planner/stage_partition.hpp"
#include "strategies/cost/worst_ranks.hpp"
#include "strategies/planner/checkpointing.hpp"
#include "strategies/planner/search_context.hpp"

#include <algorithm>
#include <functional>
#include <optional>

namespace partita {

Holding most_held(const Cost& cost, Index limit) {
  const auto& bytes = cost.memory.each.bytes;
  const auto most = std::max_element(bytes.begin(), bytes.end()) - bytes.begin();
  const Index missing = limit > 0 ? std::max<Index>(0, cost.memory.total - limit) : 0;
  return {cost.memory_rank, cost.memory, missing, static_cast<MemoryClass>(most)};
}

namespace {

/// A changed strategy or workload.
struct Variant {
  std::string change;
  Strategy strategy;
  Workload workload;
};

/// Makes a variant. Throws Error if it cannot be made, for example if the grid would have too many axes or ranks.
using Change = std::function<Variant()>;

/// The steps of one change, the smallest first.
using Family = std::vector<Change>;

Strategy sharded(Strategy strategy) { return strategy.optimizer_state(Strategy::OptimizerState::sharded); }

constexpr const char* sharded_text = "optimizer = \"sharded\"";

/// Returns the grid with the extent of axis `changed` multiplied by `times`. Adds the axis if the grid does not have
/// it.
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

/// Returns a layout's notation in which `axis` also shards `dim`, after the axes that shard it already.
std::string with_cut(const std::string& layout, const std::string& dim, const std::string& axis) {
  std::vector<Placement> words = parse_notation(layout);
  auto word = std::find_if(words.begin(), words.end(), [&](const Placement& each) { return each.dim.text == dim; });
  if (word == words.end()) word = words.insert(word, Placement{{dim, 0}, {}});
  word->axes.push_back({axis, 0});
  std::string text;
  for (const auto& [name, axes] : words) {
    text += fmt::format("{}{}", text.empty() ? "" : " ", name.text);
    for (std::size_t i = 0; i < axes.size(); ++i) text += fmt::format("{}{}", i == 0 ? "@(" : ",", axes[i].text);
    if (!axes.empty()) text += ")";
  }
  return text;
}

class RemedySearch {
 public:
  RemedySearch(const SearchContext& context, const Strategy& strategy, Index limit)
      : context_(context), strategy_(strategy), limit_(limit) {}

  std::vector<Remedy> run() {
    const auto now = price(as("", strategy_));
    kept_ = kept();
    std::vector<Remedy> found;
    for (const Family& family : families())
      if (const auto best = best_of(family); best && (!now || best->held < now->held)) found.push_back(*best);
    std::stable_sort(found.begin(), found.end(), [](const Remedy& a, const Remedy& b) {
      return a.missing != b.missing ? a.missing < b.missing : a.price() < b.price();
    });
    return found;
  }

 private:
  Change as(const std::string& change, const Strategy& strategy) const {
    return [=, this] { return Variant{change, strategy, context_.workload}; };
  }

  std::vector<Family> families() const {
    const Strategy both = recomputing(sharded(strategy_), kept_);
    const std::string recompute = recompute_text(kept_), both_text = fmt::format("{} and {}", sharded_text, recompute);
    std::vector<Family> all;
    if (strategy_.optimizer_state() != Strategy::OptimizerState::sharded)
      all.push_back({as(sharded_text, sharded(strategy_))});
    Strategy shards = strategy_;
    shards.shard_weights();
    const std::string shards_text = "weights = \"sharded\"";
    if (!strategy_.shards_weights()) {
      all.push_back({as(shards_text, shards)});
      all.push_back({as(fmt::format("{} and {}", shards_text, recompute), recomputing(shards, kept_))});
    }
    all.push_back({as(recompute, recomputing(strategy_, kept_))});
    all.push_back({as(both_text, both)});
    all.push_back(more_microbatches(strategy_, ""));
    all.push_back(more_microbatches(both, fmt::format(" with {}", both_text)));
    all.push_back(smaller_batches());
    add_ranks(all);
    return all;
  }

  /// Returns the layers that keep their data when all other layers recompute.
  std::vector<std::string> kept() const {
    try {
      return layers_to_keep(bind(context_.model, placed({"", strategy_, context_.workload}), context_.workload));
    } catch (const Error&) {  // some changes may be bindable nevertheless
      return {};
    }
  }

  Family more_microbatches(const Strategy& strategy, const std::string& with) const {
    Family family;
    const bool single = strategy.schedule() == ScheduleKind::single;
    const ScheduleKind kind = single ? ScheduleKind::one_f_one_b : strategy.schedule();
    const int groups = single ? 0 : strategy.groups_per_stage();
    for (Index count = 2 * strategy.microbatches(); count <= std::min<Index>(context_.workload.batch, 1 << 16);
         count *= 2)
      family.push_back([=, this] {
        Strategy changed = strategy;
        changed.schedule(kind, static_cast<int>(count), groups);
        return Variant{fmt::format("{} microbatches ({}){}", count, name(kind), with), changed, context_.workload};
      });
    return family;
  }

  Family smaller_batches() const {
    Family family;
    Workload smaller = context_.workload;
    while ((smaller.batch /= 2) > 0)
      family.push_back([=, this] { return Variant{fmt::format("a batch of {}", smaller.batch), strategy_, smaller}; });
    return family;
  }

  void add_ranks(std::vector<Family>& all) const {
    const auto& stages = strategy_.groups();
    if (strategy_.stage_count() > 1 && stages.empty())
      all.push_back({[this] {
        Strategy more = strategy_;
        more.stages(2 * strategy_.stage_count());
        return Variant{fmt::format("stages = {}", more.stage_count()), more, context_.workload};
      }});
    if (std::any_of(stages.begin(), stages.end(), [](const auto& stage) { return stage.grid.has_value(); })) return;
    const Grid& grid = strategy_.grid();
    for (const auto& axis : grid.names()) all.push_back(longer(axis, [this] { return strategy_; }));
    for (const auto& [axis, dim] : {std::pair("data", "N"), {"y", "H"}, {"seq", "L"}, {"c", "C"}})
      if (grid.find(axis) < 0)
        all.push_back(longer(axis, [this, dim = dim, axis = axis] { return cutting(dim, axis); }));
  }

  /// The steps of a longer axis: the strategy on a grid with 2, 4 and 8 times its extent.
  Family longer(const std::string& axis, const std::function<Strategy()>& strategy) const {
    Family family;
    for (const int times : {2, 4, 8})
      family.push_back([=, this] {
        const Grid grid = lengthened(strategy_.grid(), axis, times);
        return Variant{fmt::format("the grid \"{}\"", grid.print()), strategy().on(grid), context_.workload};
      });
    return family;
  }

  /// Returns the strategy with every output also sharded along `dim` over `axis`. Later rules win, so all output rules
  /// are repeated in their order.
  Strategy cutting(const std::string& dim, const std::string& axis) const {
    Strategy strategy = strategy_;
    bool said = false;
    for (const auto& each : strategy_.rules()) {
      if (!each.rule.output) continue;
      const bool lacks = each.exact() && !has(each.match, dim[0]);  // a rule that names its layer exactly must fit it
      strategy.layer(each.match, {.output = lacks ? *each.rule.output : with_cut(*each.rule.output, dim, axis)},
                     each.place);
      said = true;
    }
    return said ? strategy : strategy.layer("*", {.output = with_cut("", dim, axis)});
  }

  bool has(const std::string& layer, char dim) const {
    const auto shapes = context_.model.shapes(1);
    for (std::size_t i = 0; i < shapes.size(); ++i)
      if (context_.model.layers()[i].name == layer) return shapes[i].has(dim);
    return false;
  }

  /// Returns the strategy with stage boundaries chosen if they were open.
  Strategy placed(const Variant& variant) const {
    return place_stages_nearest(context_.model, variant.strategy, variant.workload, context_.machine, context_.times,
                                limit_);
  }

  /// Returns nothing if the variant cannot be made or bound.
  std::optional<Remedy> price(const Change& change) const {
    try {
      const Variant variant = change();
      const Plan plan = bind(context_.model, placed(variant), variant.workload);
      const Index held = fullest_rank(plan).memory.total;
      return Remedy{variant.change, variant.workload.batch,           plan.ranks(), context_.pricer->step(plan).seconds,
                    held,           std::max<Index>(0, held - limit_)};
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  std::optional<Remedy> best_of(const Family& family) const {
    std::optional<Remedy> best;
    for (const Change& change : family) {
      const auto next = price(change);
      if (next && (!best || next->held < best->held)) best = next;
      if (best && best->missing == 0) break;
    }
    return best;
  }

  const SearchContext& context_;
  const Strategy& strategy_;
  Index limit_;
  std::vector<std::string> kept_;
};

}  // namespace

std::vector<Remedy> remedies(const Model& model, const Strategy& strategy, const Workload& workload,
                             const Machine& machine, const KernelTimes& times, Index limit) {
  const SearchContext context{model, workload, machine, times};
  return RemedySearch(context, strategy, limit).run();
}

}  // namespace partita
