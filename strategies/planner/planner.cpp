#include "partita/strategies/planner/planner.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/planner/stage_partition.hpp"
#include "src/model/operators.hpp"
#include "strategies/planner/choose_products.hpp"
#include "strategies/planner/grid_search.hpp"
#include "strategies/planner/layout_alternatives.hpp"
#include "strategies/planner/short_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <string>

namespace partita {

namespace {

/// So many strategies are looked for at least. The estimates of some kinds are too low and of others too high, so a
/// search for one strategy would often end with the best of the wrong kind.
constexpr int least_searched = 3;
/// The ranks that divide channels in all layers alike.
constexpr int most_ranks_of_channels = 16;
/// A change of layouts must save this share of the step.
constexpr double least_saving_of_plan = 1e-3;

/// Returns the strategy in which one group of layers has a better layout; nothing if there is none, or none that stays
/// of the strategy's kind and within the limit in bytes. The search estimates each layer on its own and knows few
/// patterns; this looks at the price of the whole step.
std::optional<Planned> better(const Planned& planned, const SearchContext& context, Index limit) {
  const Model& model = context.model;
  const StrategyKind kind = kind_of(model, planned.strategy);
  for (const auto& each : layout_alternatives(context, planned.strategy).all) {
    if (each.cost.seconds >= planned.cost.seconds * (1 - least_saving_of_plan)) break;
    if (kind_of(model, each.strategy) != kind) continue;
    Cost cost = context.price(context.bind(each.strategy));
    if (cost.memory.total <= limit) return Planned{with_short_rules(model, each.strategy), std::move(cost)};
  }
  return std::nullopt;
}

/// Moves layers that are alike to other layouts of the strategy, as long as it stays of its kind and within the limit.
void move_classes(Planned& planned, const SearchContext& context, Index limit) {
  const StrategyKind kind = kind_of(context.model, planned.strategy);
  move_classes(context, planned.strategy, [&](const Strategy& other, const Plan& plan) {
    const double most = planned.cost.seconds * (1 - least_saving_of_plan);
    if (kind_of(context.model, other) != kind || context.pricer->step_at_least(plan).seconds >= most) return false;
    Cost cost = context.price(plan);
    if (cost.seconds >= most || cost.memory.total > limit) return false;
    planned = {other, std::move(cost), std::move(planned.choices)};
    return true;
  });
  planned.strategy = with_short_rules(context.model, planned.strategy);
}

/// Lets ranks share the update of weights, or each do all of it, if that is faster and fits.
void choose_update(Planned& planned, const SearchContext& context, Index limit) {
  using enum Strategy::OptimizerState;
  Strategy other = planned.strategy;
  other.optimizer_state(other.optimizer_state() == sharded ? replicated : sharded);
  const std::optional<Plan> bound = context.bind_if_it_can(other);
  if (!bound) return;
  const Plan& plan = *bound;
  if (context.pricer->step(plan).seconds >= planned.cost.seconds) return;
  Cost cost = context.price(plan);
  if (cost.memory.total <= limit) planned = {std::move(other), std::move(cost), std::move(planned.choices)};
}

/// The texts of strategies whose products leave nothing to choose.
using Settled = std::set<std::string>;

/// Adds the products and layouts of weights that are fastest on the machine; `by_stage` as in choose_products().
/// Forgets those whose rule a change of layouts has taken away.
void add_products(Planned& planned, const SearchContext& context, Index limit, Settled& settled,
                  bool by_stage = false) {
  std::erase_if(planned.choices, [&](const ProductChoice& choice) {
    const LayerRule rule = planned.strategy.rule_of(choice.layers.front());
    return rule.weights != choice.rule.weights || rule.algorithm.has_value() != choice.rule.algorithm.has_value();
  });
  by_stage = by_stage && planned.strategy.grids().size() > 1;
  if (!by_stage && settled.contains(planned.strategy.print())) return;
  auto [strategy, choices] = choose_products(context, planned.strategy, limit, by_stage);
  if (!choices.empty()) strategy = with_short_rules(context.model, strategy);
  settled.insert(strategy.print());
  if (choices.empty()) return;
  planned.strategy = std::move(strategy);
  planned.cost = context.price(context.bind(planned.strategy));
  planned.choices.insert(planned.choices.end(), choices.begin(), choices.end());
  // A later choice may have added an algorithm to the weights of an earlier one.
  for (ProductChoice& choice : planned.choices) choice.rule = planned.strategy.rule_of(choice.layers.front());
}

/// Returns the grid with its axes in other orders. Their order decides which ranks share a unit of the machine.
std::vector<Grid> other_orders(const Grid& grid) {
  std::vector<int> order(static_cast<std::size_t>(grid.axes()));
  std::iota(order.begin(), order.end(), 0);
  std::vector<Grid> all;
  while (std::next_permutation(order.begin(), order.end())) {
    std::string text;
    for (const int axis : order) text += fmt::format(" {}={}", grid.name(axis), grid.extent(axis));
    all.push_back(Grid::parse(text));
  }
  return all;
}

/// True if an operator reads the order of the grid's axes: normalization over a number of ranks takes the last ones.
bool reads_order(const Model& model) {
  const auto& layers = model.layers();
  return std::any_of(layers.begin(), layers.end(), [](const auto& layer) {
    const auto* const norm = dynamic_cast<const BatchNormOperator*>(layer.op.get());
    return norm != nullptr && norm->norm().statistics == Statistics::ranks;
  });
}

/// Brings the axes of the grid into the fastest order that fits.
void choose_order(Planned& planned, const SearchContext& context, Index limit) {
  constexpr int most_axes = 3;
  if (planned.strategy.grid().axes() > most_axes || reads_order(context.model)) return;
  for (const Grid& grid : other_orders(planned.strategy.grid())) {
    if (context.time_is_up()) return;
    try {
      const Strategy other = planned.strategy.on(grid);
      const Plan plan = context.bind(other);
      const double most = planned.cost.seconds * (1 - least_saving_of_plan);
      if (context.pricer->step_at_least(plan).seconds >= most) continue;
      Cost cost = context.price(plan);
      if (cost.seconds < most && cost.memory.total <= limit)
        planned = {other, std::move(cost), std::move(planned.choices)};
    } catch (const Error&) {  // a layer refuses this order
    }
  }
}

/// Improves the layouts of groups as long as that helps and there is time, and chooses who updates the weights and how
/// products run. The result has short rules. Returns false if the time was up.
bool improve(Planned& planned, const SearchContext& context, Index limit, Settled& settled) {
  constexpr int most_rounds = 8;
  planned.strategy = with_short_rules(context.model, planned.strategy);
  choose_update(planned, context, limit);
  for (int round = 0; round < most_rounds; ++round) {
    if (context.time_is_up()) return false;
    auto next = better(planned, context, limit);
    if (!next) break;
    next->choices = std::move(planned.choices);
    planned = std::move(*next);
  }
  move_classes(planned, context, limit);
  add_products(planned, context, limit, settled);
  choose_update(planned, context, limit);  // again: products may leave other weights to update
  return true;
}

/// Returns the fastest pipeline whose stages shard samples alone; nothing if none runs and fits. It is searched apart,
/// because pipelines take up to a fifth less time than their estimates, so other candidates would often hide it.
std::vector<Planned> plain_pipeline(const SearchContext& context, PlannerOptions options) {
  options.best = 1;
  options.most_split = 1;
  options.least_stages = std::max(options.least_stages, 2);
  options.left_out = {};
  try {
    return GridSearch(context, options).run();
  } catch (const Error&) {  // none runs, or none fits
    return {};
  }
}

/// Returns strategies that divide channels, or samples and channels, of all layers alike, on the stages and with the
/// schedule of one that was found. The search estimates products as bind() chooses them; those that are chosen for the
/// machine may take half of that, so that it would pass these by. A model with convolutions has too many ways to run,
/// and few such products.
std::vector<Planned> with_channels(const Planned& found, const SearchContext& context, const PlannerOptions& options) {
  const auto& layers = context.model.layers();
  const bool convolves = std::any_of(layers.begin(), layers.end(),
                                     [](const auto& layer) { return layer.op->kernel_kind() == KernelKind::conv; });
  if (convolves) return {};
  const Index limit = memory_limit(options, context.machine);
  const int ranks = found.strategy.grid().size(), stages = static_cast<int>(found.strategy.grids().size());
  std::vector<Planned> all;
  const auto add = [&](const std::string& grid, const char* output) {
    if (context.time_is_up()) return;
    Strategy strategy(grid);
    strategy.layer("*", {.output = output}).optimizer_state(found.strategy.optimizer_state());
    if (stages > 1) strategy.stages(stages);
    strategy.schedule(found.strategy.schedule(), found.strategy.microbatches());
    try {
      Strategy placed = place_stages(context.model, strategy, context.workload, context.machine, context.times, limit);
      Cost cost = context.price(context.bind(placed));
      all.push_back({std::move(placed), std::move(cost)});
    } catch (const Error&) {  // a layer refuses it
    }
  };
  for (int split = 2; split <= std::min({ranks, options.most_split, most_ranks_of_channels}); ++split) {
    if (split == ranks) add(fmt::format("c={}", split), "C@c");
    if (split == ranks || ranks % split != 0) continue;
    for (const std::string& grid :
         {fmt::format("data={} c={}", ranks / split, split), fmt::format("c={} data={}", split, ranks / split)}) {
      add(grid, "N@data C@c");
      add(grid, "C@c");  // some ranks repeat the work of others: where messages rule, fewer may be faster
    }
  }
  return all;
}

/// Returns the number of strategies that take at most `of_interest` times as long as the fastest.
std::ptrdiff_t of_interest_among(const std::vector<Planned>& found) {
  double fastest = std::numeric_limits<double>::infinity();
  for (const Planned& each : found) fastest = std::min(fastest, each.cost.seconds);
  return std::count_if(found.begin(), found.end(),
                       [&](const Planned& each) { return each.cost.seconds <= of_interest * fastest; });
}

/// Chooses again from the strategies that the search kept: improving them has changed their times.
std::vector<Planned> fastest_of_kinds(const Model& model, std::vector<Planned> found, int most) {
  std::vector<KindTime> times;
  for (const Planned& each : found) times.push_back({kind_of(model, each.strategy), each.cost.seconds});
  std::vector<Planned> best;
  for (const std::size_t which : partita::fastest_of_kinds(times, most)) best.push_back(std::move(found[which]));
  return best;
}

void check(const PlannerOptions& options) {
  if (options.ranks < 1 || options.ranks > most_ranks)
    fail("the number of ranks is {}; it must be 1 to {}", options.ranks, most_ranks);
  if (options.best < 1) fail("the number of strategies to find is {}; it must be 1 or more", options.best);
  if (options.examined < 1) fail("the number of candidates to examine is {}; it must be 1 or more", options.examined);
  for (const int each : {options.rounds, options.most_split, options.most_microbatches})
    if (each < 1)
      fail("a limit of the planner's rounds, ranks per block or microbatches is {}; it must be 1 or more", each);
  if (options.least_stages < 1) fail("the minimum number of stages is {}; it must be 1 or more", options.least_stages);
  if (!(options.time_limit >= 0)) fail("the time limit is {} seconds; it must be 0 or more", options.time_limit);
}

}  // namespace

std::vector<Planned> plan_strategies(const Model& model, const Workload& workload, const Machine& machine,
                                     const KernelTimes& times, const PlannerOptions& options) {
  check(options);
  const Machine here = machine.shared_by(options.ranks);
  SearchContext context{model, workload, here, times};
  if (options.time_limit > 0) context.until = now() + options.time_limit;
  PlannerOptions searched = options;
  searched.best = std::max(options.best, least_searched);
  GridSearch search(context, searched);
  std::vector<Planned> found = search.run();
  Unfinished unfinished = search.unfinished();
  const bool plain = options.most_split == 1 && options.least_stages > 1;  // the search was that of plain_pipeline()
  const std::size_t searched_apart = found.size();
  if (!plain && !options.kinds.empty() && !context.time_is_up())
    for (auto& each : plain_pipeline(context, options)) found.push_back(std::move(each));
  const bool has_plain = found.size() > searched_apart;
  int improved = 0;
  Settled settled;
  const auto improve_one = [&](Planned& planned) {
    if (!improve(planned, context, memory_limit(options, machine), settled)) ++unfinished.not_improved;
    if (options.progress)
      options.progress("strategies improved", ++improved, std::max(improved, static_cast<int>(found.size())));
  };
  for (Planned& each : found) improve_one(each);
  const auto complete = [&](Planned& each) { each.cost = context.pricer->cost(context.bind(each.strategy)); };
  if (has_plain && options.plain_pipeline) {
    Planned fastest = found[searched_apart];
    complete(fastest);
    options.plain_pipeline(fastest);
  }
  const auto alike = [&](const Planned& a, const Planned& b) {
    return nearly_equal(a.cost.seconds, b.cost.seconds) && kind_of(model, a.strategy) == kind_of(model, b.strategy);
  };
  // What improving has saved decides which kinds are of interest. If they are too few, displaced strategies are
  // improved.
  for (Planned displaced : search.displaced()) {
    if (of_interest_among(found) >= searched.best || context.time_is_up()) break;
    improve_one(displaced);
    if (std::none_of(found.begin(), found.end(), [&](const Planned& each) { return alike(each, displaced); }))
      found.push_back(std::move(displaced));
  }
  const auto faster = [](const Planned& a, const Planned& b) { return a.cost.seconds < b.cost.seconds; };
  if (options.ranks > 1 && !context.time_is_up())
    for (Planned& each : with_channels(*std::min_element(found.begin(), found.end(), faster), context, options)) {
      improve_one(each);
      if (each.cost.memory.total <= memory_limit(options, machine)) found.push_back(std::move(each));
    }
  std::stable_sort(found.begin(), found.end(), faster);
  found.erase(std::unique(found.begin(), found.end(), alike), found.end());
  std::vector<Planned> best = fastest_of_kinds(model, std::move(found), options.best);
  for (Planned& each : best) {
    choose_order(each, context, memory_limit(options, machine));
    if (context.time_is_up())
      ++unfinished.not_improved;
    else
      add_products(each, context, memory_limit(options, machine), settled, true);
  }
  std::stable_sort(best.begin(), best.end(), faster);
  for (Planned& each : best) complete(each);
  unfinished.not_improved = std::min(unfinished.not_improved, static_cast<int>(best.size()));
  if (options.unfinished && (unfinished.candidates > 0 || unfinished.not_improved > 0)) options.unfinished(unfinished);
  return best;
}

}  // namespace partita
