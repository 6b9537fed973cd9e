#include "strategies/planner/grid_search.hpp"

#include "partita/base/error.hpp"
#include "strategies/plan/bind.hpp"
#include "strategies/planner/choose_products.hpp"
#include "strategies/planner/linear_partition.hpp"
#include "strategies/planner/stage_search.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

namespace partita {

namespace {

// Assumptions of the search. PlannerOptions says how much it searches.

/// The share of a microbatch's time that its backward pass takes: two of three passes of about equal length. Gradient
/// sums hide behind the backward pass of the last microbatch. With a larger share, grids with long sums would look
/// better than they are and would be examined in vain.
constexpr double backward_share = 2.0 / 3;
/// The shares of the hideable gradient sums that count as cost when layouts are chosen. The true share is known only
/// once all layouts are chosen, so several are tried: 0 (see refined()) and these. More values give more choices per
/// grid, few of them new.
constexpr std::array exposed_shares{0.5, 1.0};
/// Another split of the same samples among as many ranks takes at least this share of the estimated time of a typical
/// one. Of five searches on 360 and 384 ranks, the best other split took 0.87 to 1 of the best typical one where these
/// were within 10 % of the fastest; elsewhere 0.58 and more.
constexpr double least_of_typical = 0.75;
/// An update of the weights that takes less of the step is not tried in shares here: improve() does so at the end.
constexpr double least_update = 0.01;
/// A candidate that cuts channels is examined up to this multiple of the fastest step, since other products may save so
/// much. Of 100 drawn strategies of four layers of 4,096 features, the best one saved 40 % of its step.
constexpr double most_of_channels = 2;
/// The schedule kind whose stages each hold two groups of layers.
constexpr ScheduleKind chimera = ScheduleKind::chimera;

/// Returns the first two spatial dimensions of the model's input.
std::string first_spatial_dims(const Model& model) {
  const Shape input = model.shapes(1)[0];
  std::string dims;
  for (int d = 0; d < input.dims() && dims.size() < 2; ++d)
    if (is_spatial(input.name(d))) dims += input.name(d);
  return dims;
}

Strategy scheduled(const Strategy& strategy, ScheduleKind kind, const Candidate& candidate) {
  return Strategy(strategy).schedule(kind, candidate.microbatches);
}

}  // namespace

GridSearch::GridSearch(const SearchContext& context, const PlannerOptions& options)
    : context_(context),
      options_(options),
      best_(context, options),
      spatial_(first_spatial_dims(context.model)),
      layout_costs_(context, spatial_) {}

std::vector<Planned> GridSearch::run() {
  search();
  if (best_.found().empty()) best_.fail_unfit();
  return best_.found();
}

void GridSearch::search() {
  std::priority_queue<Candidate> queue;
  const auto collectives = [&](int data) { return layout_costs_.collectives(data); };
  int outlines = 0;
  std::map<std::tuple<int, int, int>, std::vector<Candidate>>
      others;  // splits that wait for an estimate of a typical one
  const auto family = [](const Candidate& c) { return std::tuple(c.stages, c.microbatches, c.shares.data); };
  for (auto& outline : all_outlines(context_, options_, spatial_, collectives)) {
    ++outlines;
    if (outline.typical())
      queue.push(std::move(outline));
    else
      others[family(outline)].push_back(std::move(outline));
  }
  int estimated = 0, examined = 0, rounds = 0;
  bool offered = false;                         // whether any candidate has had a schedule
  std::set<std::tuple<int, int, double>> seen;  // equal seconds: the same strategy with other names of axes
  const auto show = [&](std::string_view what, int done, int all) {
    if (options_.progress) options_.progress(what, done, all);
  };
  bool stopped = false;
  const auto time_is_up = [&] { return stopped = stopped || (examined > 0 && context_.time_is_up()); };
  for (; !queue.empty() && !best_.done(queue.top().seconds) && (rounds < options_.rounds || !offered); ++rounds) {
    if (offered && time_is_up()) break;
    Offers offers;
    for (int last = examined + options_.examined;
         !queue.empty() && examined < last && !best_.done(queue.top().seconds) && !time_is_up();) {
      const Candidate candidate = queue.top();
      queue.pop();
      if (candidate.known != Candidate::Known::layouts) {
        if (candidate.known == Candidate::Known::even_shares) show("grids estimated", ++estimated, outlines);
        for (auto& more : refined(candidate)) {
          if (more.known == Candidate::Known::layouts)
            for (auto& other : std::exchange(others[family(more)], {})) {
              other.seconds = std::max(other.seconds, least_of_typical * more.seconds);
              queue.push(std::move(other));
            }
          note_both_ways(more);
          note_channels(more);
          queue.push(std::move(more));
        }
        continue;
      }
      if (!seen.emplace(candidate.stages, candidate.microbatches, candidate.seconds).second) continue;
      if (best_.has_better(candidate.kind(context_.model), candidate.seconds)) continue;
      examine(candidate, offers);
      ++examined;
      show("candidates examined", examined, last);
    }
    offered = offered || !offers.empty();
    offer(std::move(offers));
  }
  if (stopped && !queue.empty()) unfinished_ = {static_cast<Index>(queue.size()), queue.top().seconds, 0};
  if (offered && !stopped) {
    offer_both_ways();
    note_channels(std::move(queue));
    examine_channels();
    offer_products();
  }
  for (const auto& each : layout_costs_.left_out())
    if (options_.left_out) options_.left_out(each);
  if (!offered) fail_unexamined(examined);
}

void GridSearch::fail_unexamined(int examined) const {
  if (examined == 0)
    fail("no grid of {} ranks can run the model '{}' with a batch of {}; give another number of ranks", options_.ranks,
         context_.model.name(), context_.workload.batch);
  std::string kinds;
  for (const ScheduleKind kind : options_.kinds) kinds.append(kinds.empty() ? "" : ", ").append(name(kind));
  fail("no schedule of the kinds {} fits {} ranks and the {} layers of the model '{}'", kinds, options_.ranks,
       context_.model.layers().size(), context_.model.name());
}

void GridSearch::offer(std::vector<UnplacedStrategy> offers) {
  std::stable_sort(offers.begin(), offers.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  for (const auto& each : offers) best_.offer(each);
}

void GridSearch::offer(Offers offers) {
  offer(std::move(offers.now));
  std::vector<UnplacedStrategy> estimated;
  for (const auto& [strategy, data, seconds] : offers.two_replicas)
    if (best_.would_keep(kind_of(context_.model, strategy), seconds))
      add_offer(estimated, strategy, placed(bind_single_stage(context_, strategy), strategy), data);
  offer(std::move(estimated));
}

/// Adds an offer, estimated with its stages as placed. If the update of the weights takes part of the step and is
/// faster in shares, ranks share it.
void GridSearch::add_offer(std::vector<UnplacedStrategy>& offers, Strategy strategy, Strategy placed, int data) {
  const std::optional<Plan> plan = context_.bind_if_it_can(placed);
  if (!plan) return;
  StepCost step = context_.pricer->step(*plan);
  if (step.parts.update >= least_update * step.seconds) {
    Strategy sharing = placed;
    sharing.optimizer_state(Strategy::OptimizerState::sharded);
    const std::optional<Plan> other = context_.bind_if_it_can(sharing);
    if (const auto shared = other ? std::optional(context_.pricer->step(*other)) : std::nullopt;
        shared && shared->seconds < step.seconds) {
      step = *shared;
      placed = std::move(sharing);
      strategy.optimizer_state(Strategy::OptimizerState::sharded);
    }
  }
  note_products(placed, step);
  offers.push_back({std::move(strategy), data, step.seconds});
}

/// Keeps the fastest candidate of each grid with an axis for channels.
void GridSearch::note_channels(const Candidate& candidate) {
  if (candidate.known != Candidate::Known::layouts || candidate.shares.c == 1) return;
  const auto [at, fresh] = channels_.try_emplace({candidate.stages, candidate.shares}, candidate);
  if (!fresh && candidate.seconds < at->second.seconds) at->second = candidate;
}

/// Does so for the candidates that were bounded, but not refined.
void GridSearch::note_channels(std::priority_queue<Candidate> left) {
  if (best_.found().empty()) return;
  const double most = most_of_channels * best_.found().front().cost.seconds;
  for (; !left.empty() && left.top().seconds < most && !context_.time_is_up(); left.pop())
    if (left.top().shares.c > 1 && left.top().known == Candidate::Known::lower_bound)
      for (const Candidate& each : refined(left.top())) note_channels(each);
}

/// Offers what note_channels() kept, as far as it could be of interest if its products took no time. The estimates know
/// products only as bind() would run them.
void GridSearch::examine_channels() {
  std::vector<const Candidate*> all;
  for (const auto& [grid, candidate] : channels_)
    if (best_.found().empty() || candidate.seconds < most_of_channels * best_.found().front().cost.seconds)
      all.push_back(&candidate);
  std::sort(all.begin(), all.end(), [](const auto* a, const auto* b) { return a->seconds < b->seconds; });
  for (std::size_t i = 0; i < all.size() && std::cmp_less(i, options_.examined) && !context_.time_is_up(); ++i) {
    Offers offers;
    examine(*all[i], offers);
    offer(std::move(offers));
  }
}

/// Keeps the fastest strategy of each number of stages and microbatches and grid that cuts channels. Its products may
/// be faster in another way, which is tried at the end, since it takes long.
void GridSearch::note_products(const Strategy& placed, const StepCost& step) {
  if (!kind_of(context_.model, placed).channels) return;
  const auto [at, fresh] = with_channels_.try_emplace(
      std::tuple(placed.groups().size(), placed.microbatches(), placed.grid().print()), Priced{placed, step});
  if (!fresh && step.seconds < at->second.step.seconds) at->second = {placed, step};
}

/// Offers what note_products() kept, with the products that are fastest on the machine.
void GridSearch::offer_products() {
  const Index limit = memory_limit(options_, context_.machine);
  std::vector<Priced> all;
  for (auto& [grid, priced] : with_channels_) all.push_back(std::move(priced));
  std::sort(all.begin(), all.end(), [](const Priced& a, const Priced& b) { return a.step.seconds < b.step.seconds; });
  if (std::ssize(all) > 2 * options_.examined) all.erase(all.begin() + 2 * options_.examined, all.end());
  for (const Priced& each : all) {
    if (context_.time_is_up()) return;
    const double best =
        best_.found().empty() ? std::numeric_limits<double>::infinity() : best_.found().front().cost.seconds;
    auto [strategy, choices] = choose_products(context_, each.strategy, limit, false, best);
    if (choices.empty()) continue;
    Cost cost = context_.price(context_.bind(strategy));
    best_.replace(each.step.seconds, {std::move(strategy), std::move(cost), std::move(choices)});
  }
}

/// Returns the samples of a microbatch that a rank has at most.
Index GridSearch::samples_per_rank(const Candidate& candidate) const {
  const Index microbatch = microbatch_of(context_.workload, candidate.microbatches).batch;
  return (microbatch + candidate.shares.data - 1) / candidate.shares.data;
}

/// Returns the candidate with a better estimate, once per choice of layouts. Returns nothing if it cannot run, or if it
/// duplicates another candidate.
std::vector<Candidate> GridSearch::refined(Candidate candidate) {
  const Index microbatch = microbatch_of(context_.workload, candidate.microbatches).batch;
  const CandidateLayoutCosts& costs = layout_costs_.costs(candidate.shares, samples_per_rank(candidate));
  if (costs.patterns.empty()) return {};
  if (candidate.known == Candidate::Known::even_shares) {
    const auto [work, longest] = layout_costs_.lower_bound(costs, candidate.microbatches, candidate.stages);
    candidate.known = Candidate::Known::lower_bound;
    candidate.seconds = candidate.pipelined(work, longest);
    return {candidate};
  }
  candidate.known = Candidate::Known::layouts;
  candidate.patterns = costs.patterns;
  candidate.instead = layout_costs_.instead(costs);
  // A choice has a pattern for every layer. Estimates differ so little that one pattern for all layers may be best.
  std::set<std::vector<int>> choices;
  for (std::size_t p = 0; p < costs.patterns.size(); ++p)
    choices.emplace(context_.model.layers().size(), static_cast<int>(p));
  const ChoiceGraph graph = layout_costs_.graph(costs, candidate.microbatches, 0);
  choices.insert(eliminate_choices(graph).chosen);
  for (const double exposed : exposed_shares)
    choices.insert(eliminate_choices(layout_costs_.graph(costs, candidate.microbatches, exposed)).chosen);
  std::vector<Candidate> all;
  for (const auto& pattern_of_layer : choices) {
    candidate.pattern_of_layer = pattern_of_layer;
    estimate(candidate, costs, graph);
    if (!candidate.could_be_data(microbatch)) all.push_back(candidate);
  }
  return all;
}

/// Estimates the seconds of a step with the candidate's layouts. Gradient sums hide behind the backward pass of the
/// last microbatch, as far as that can be. Of several stages each has its own sums, at the same time as the others.
void GridSearch::estimate(Candidate& candidate, const CandidateLayoutCosts& costs, const ChoiceGraph& graph) const {
  const auto& pattern_of_layer = candidate.pattern_of_layer;
  const auto each = layout_costs_.seconds_of_layers(costs, graph, pattern_of_layer);
  const double work = std::accumulate(each.begin(), each.end(), 0.0);
  const Segments parts = minimize_max_segment(each, candidate.stages);
  const auto boundary_seconds = layout_costs_.boundary_seconds(costs, pattern_of_layer);
  std::vector<double> transfers;
  for (const std::size_t begin : parts.begins) transfers.push_back(boundary_seconds[begin]);
  candidate.seconds =
      candidate.pipelined(work, parts.longest, transfers) +
      layout_costs_.exposed_comm(costs, pattern_of_layer, backward_share * work / candidate.microbatches) /
          candidate.stages;
  candidate.both_ways = candidate.passed_both_ways(work);
}

/// Keeps the candidate if it is among those that would be fastest under chimera. The other estimates, by which
/// candidates are examined, are of schedules in which microbatches pass one way.
void GridSearch::note_both_ways(const Candidate& candidate) {
  if (candidate.known != Candidate::Known::layouts || candidate.stages % 2 != 0 || candidate.microbatches == 1) return;
  const auto sooner = [](const Candidate& a, const Candidate& b) { return a.both_ways < b.both_ways; };
  const auto at = std::upper_bound(both_ways_.begin(), both_ways_.end(), candidate, sooner);
  both_ways_.insert(at, candidate);
  if (std::ssize(both_ways_) > options_.examined) both_ways_.pop_back();
}

/// Offers what note_both_ways() kept, under chimera.
void GridSearch::offer_both_ways() {
  if (std::count(options_.kinds.begin(), options_.kinds.end(), chimera) == 0) return;
  Offers offers;
  for (const Candidate& each : both_ways_)
    offers.two_replicas.push_back({scheduled(each.strategy(context_.model).stages(each.stages), chimera, each),
                                   each.shares.data, each.both_ways});
  offer(std::move(offers));
}

/// Turns a candidate into offers, one per schedule.
void GridSearch::examine(const Candidate& candidate, Offers& offers) {
  const Strategy layouts = candidate.strategy(context_.model);
  const int data = candidate.shares.data;
  if (candidate.stages == 1) {
    const Strategy whole =
        candidate.microbatches == 1 ? layouts : scheduled(layouts, ScheduleKind::one_f_one_b, candidate);
    return add_offer(offers.now, whole, whole, data);
  }
  const Strategy staged = Strategy(layouts).stages(candidate.stages);
  std::optional<Plan> single_stage;  // the plan before stages are placed; the same for all kinds
  for (const ScheduleKind kind : options_.kinds) {
    const int groups = candidate.stages * default_groups_per_stage(kind);
    if (kind == chimera || groups > static_cast<int>(context_.model.layers().size())) continue;
    const Strategy strategy = scheduled(staged, kind, candidate);
    if (!single_stage) single_stage = bind_single_stage(context_, strategy);
    add_offer(offers.now, strategy, placed(*single_stage, strategy), data);
  }
  if (candidate.stages % 2 == 0 && std::count(options_.kinds.begin(), options_.kinds.end(), chimera) > 0)
    offers.two_replicas.push_back({scheduled(staged, chimera, candidate), data, candidate.both_ways});
}

/// Places the stages of a strategy with little effort.
Strategy GridSearch::placed(const Plan& single_stage, const Strategy& strategy) {
  return best_.placed(single_stage, strategy, MemoryLimitedSearch::quick);
}

}  // namespace partita
