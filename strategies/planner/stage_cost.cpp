// The price of a partition into stages, from prefix sums over the pieces of a plan of one stage. A group of the pieces
// first..end-1 takes, in each pass,
//
//     seconds = sum[end] - sum[first] + busy part of the transfers across its two boundaries
//
// and makespan() simulates the schedule with these times, as CostFormula does for a bound plan. A gradient counts as
// long as its output, though a replicated output is sent more often; the price of the bound plan tells them apart.
#include "strategies/planner/stage_cost.hpp"

#include "partita/strategies/plan/memory.hpp"
#include "strategies/cost/evaluate_terms.hpp"
#include "strategies/cost/plan_pricer.hpp"
#include "strategies/cost/representatives.hpp"
#include "strategies/plan/layer_ops.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

namespace partita {

namespace {

template <class T>
T difference(const std::vector<T>& sums, int first, int end) {
  return sums[end] - sums[first];
}

/// Returns the links between equal ranks of two stages that cross the farthest level: the slowest rank delays its
/// stage.
Link farthest_links(const Machine& machine, const Grid& grid, int from, int to) {
  const int first = from * grid.size(), other = to * grid.size();
  Link farthest = links_of(machine, first, other);
  for (const int rank : representatives(grid))
    if (const Link link = links_of(machine, first + rank, other + rank); link.level > farthest.level) farthest = link;
  return farthest;
}

double all(const GroupTimes& times) { return times.forward + times.backward_data + times.backward_filter; }

/// Returns what each layer of a plan of one stage costs. Layers that share a binding and compute alike are priced once.
std::vector<LayerCost> layer_costs(const Plan& plan, PlanPricer& pricer, bool split) {
  std::vector<LayerCost> costs;
  std::unordered_multimap<const LayerBinding*, int> priced;
  for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) {
    const LayerPlan& layer = plan.layers[i];
    const auto [begin, end] = priced.equal_range(layer.binding.get());
    const auto known = std::find_if(begin, end, [&](const auto& each) {
      const LayerPlan& other = plan.layers[each.second];
      return other.recompute == layer.recompute && other.fusion() == layer.fusion();
    });
    costs.push_back(known == end ? pricer.layer(plan, i, split) : LayerCost(costs[known->second]));
    if (known == end) priced.emplace(layer.binding.get(), i);
  }
  return costs;
}

/// Models of more layers are divided into pieces of several layers: the search for a partition takes time with the
/// square of their number, and such models repeat a block.
constexpr std::size_t most_single_layers = 256;
/// With fewer pieces a group, single layers are taken, so that groups can be about equally long.
constexpr std::size_t least_pieces_of_group = 2;

/// Returns where pieces begin, and the number of layers: where nowhere within a few layers less crosses.
std::vector<int> least_crossed(const std::vector<double>& crossing) {
  constexpr std::ptrdiff_t reach = 4;
  std::vector<int> begins{0};
  for (auto at = crossing.begin() + 1; at != crossing.end() - 1; ++at)
    if (*std::min_element(at - std::min(reach, at - crossing.begin() - 1),
                          at + std::min(reach + 1, crossing.end() - 1 - at)) == *at)
      begins.push_back(static_cast<int>(at - crossing.begin()));
  begins.push_back(static_cast<int>(crossing.size()) - 1);
  return begins;
}

}  // namespace

StagePartitionCost::StagePartitionCost(const Plan& plan, PlanPricer& pricer, ScheduleRequest request,
                                       ScheduleCache& made)
    : request_(std::move(request)), made_(made), schedule_(generate(request_)), places_(schedule_.stages_of_groups()) {
  count_actions();
  add_links(plan, pricer.machine());
  const bool split = splits_backward(schedule_);
  const std::vector<LayerCost> costs = layer_costs(plan, pricer, split);
  add_layers(plan, pricer, costs);
  add_outputs(plan);
  add_parted(plan, pricer, costs);
  join_layers();
}

/// Uses the same rates as estimate(): with the links that ranks share, the capacity of the network above them, and
/// measured exchanges.
void StagePartitionCost::add_links(const Plan& plan, const Machine& machine) {
  const auto stages = static_cast<int>(schedule_.stages.size());
  CostTerms terms;
  for (int from = 0; from < stages; ++from) {
    auto& links = between_.emplace_back();
    for (int to = 0; to < stages; ++to)  // links are symmetric
      links.push_back(to < from ? between_[to][from] : terms.number(farthest_links(machine, plan.grid(), from, to)));
  }
  const auto routes = static_cast<int>(terms.links.size());
  const int level = terms.links[between_.front().back()].level;
  const int meeting = terms.number(links_of_level(machine, level, plan.ranks()));
  const MachineRates rates(terms, machine);
  bandwidth_ = 1 / rates.rate({meeting}).per_byte;
  for (int number = 0; number < routes; ++number) {
    const auto& rate = rates.rate({number});
    Boundary& boundary = boundaries_.emplace_back(
        Boundary{rate.overlap, rate.measured == nullptr ? rate.latency : 0, terms.links[number].level, {}});
    for (const auto& layer : plan.layers)
      boundary.seconds.push_back(rates.exchange_seconds(
          {number, 1,
           static_cast<double>(layer->y.owned(0).volume() * size_of(layer.op->output_type(plan.workload.dtype)))},
          1));
  }
}

const StagePartitionCost::Boundary& StagePartitionCost::between(int from, int to) const {
  return boundaries_[between_[from][to]];
}

void StagePartitionCost::add_outputs(const Plan& plan) {
  boundary_seconds_.assign(plan.layers.size() + 1, 0);
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    const auto readers = plan.all_readers.of(static_cast<int>(i));
    Sent sent{i, static_cast<int>(i), plan.layers[i].has_backward(), {readers.begin(), readers.end()}};
    for (int next = static_cast<int>(i) + 1; !sent.readers.empty() && next <= sent.readers.back(); ++next)
      boundary_seconds_[next] += farthest().seconds[i];
    if (!sent.readers.empty()) sent_.push_back(std::move(sent));
  }
}

void StagePartitionCost::add_layers(const Plan& plan, PlanPricer& pricer, const std::vector<LayerCost>& costs) {
  for (auto* sums : {&forward_, &data_, &filter_, &reduce_, &step_}) sums->assign(1, 0);
  kept_ = under_way_ = recomputed_ = {0};
  const bool has_replicas = schedule_.replicas() > 1;
  std::vector<MemoryUse> uses;
  Index weights = 0;
  for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) {
    uses.push_back(layer_memory(plan, i, 0));
    weights += uses.back()[MemoryClass::weights];
  }
  const StepEndCosts ends = pricer.step_ends(plan);
  const double update = weights > 0 ? ends.updates.front() / static_cast<double>(weights) : 0;
  for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) {
    const LayerCost& cost = costs[i];
    const GradReduceCost& sums = ends.sums[i];
    const MemoryUse& use = uses[i];
    const double replicas =  // the replicas' all-reduce: each half of the gradients travels in both directions
        has_replicas ? static_cast<double>(use[MemoryClass::gradients]) / bandwidth_ : 0;
    forward_.push_back(forward_.back() + cost.forward.total());
    data_.push_back(data_.back() + cost.backward_data.total());
    filter_.push_back(filter_.back() + cost.backward_filter.total());
    reduce_.push_back(reduce_.back() + sums.seconds * (1 - sums.overlap) + replicas);
    step_.push_back(step_.back() + sums.after + update * static_cast<double>(use[MemoryClass::weights]));
    kept_.push_back(kept_.back() + use[MemoryClass::weights] + use[MemoryClass::gradients] +
                    use[MemoryClass::optimizer]);
    const Index activations = use[MemoryClass::activations] + use[MemoryClass::halos];
    const bool recomputed = plan.layers[i].recompute;
    under_way_.push_back(under_way_.back() + (recomputed ? 0 : activations));
    recomputed_.push_back(recomputed_.back() + (recomputed ? activations : 0));
  }
}

/// Compares the plan with one in which no layer takes an activation or a dropout along.
void StagePartitionCost::add_parted(const Plan& plan, PlanPricer& pricer, const std::vector<LayerCost>& costs) {
  parted_.assign(plan.layers.size() + 1, {});
  const auto fused = [](const LayerPlan& layer) { return layer.computed_by_producer || layer.drops >= 0; };
  if (std::none_of(plan.layers.begin(), plan.layers.end(), fused)) return;
  Plan apart = plan;
  for (LayerPlan& layer : apart.layers) {
    if (layer.activation_fusion() > ActivationFusion::where_fused) layer.next_activation.reset();
    if (layer.computed_by_producer) layer.forwards_gradient = false;
    layer.computed_by_producer = layer.computed_by_reader = false;
    layer.drops = -1;
  }
  const auto costs_apart = layer_costs(apart, pricer, splits_backward(schedule_));
  const auto more = [&](int layer) {
    const LayerCost &with = costs[layer], &without = costs_apart[layer];
    return GroupTimes{without.forward.total() - with.forward.total(),
                      without.backward_data.total() - with.backward_data.total(),
                      without.backward_filter.total() - with.backward_filter.total()};
  };
  for (int i = 1; i < static_cast<int>(plan.layers.size()); ++i) {
    const LayerPlan& layer = plan.layers[i];
    if (!fused(layer) || layer.inputs[std::max(layer.drops, 0)] != i - 1) continue;
    parted_[i] = {more(i - 1), more(i)};
    if (layer.drops >= 0) parted_[i - 1].after = more(i - 1);  // a dropout whose input comes from another stage
  }
  for (const Parted& each : parted_) least_parted_ = std::min({least_parted_, all(each.before), all(each.after)});
}

/// Divides the layers into pieces, and keeps of everything by layer what stands where a piece begins.
void StagePartitionCost::join_layers() {
  const std::size_t layers = boundary_seconds_.size() - 1;
  if (layers > most_single_layers) begins_ = least_crossed(boundary_seconds_);
  if (begins_.size() <= least_pieces_of_group * held_.size()) {
    begins_.resize(layers + 1);
    std::iota(begins_.begin(), begins_.end(), 0);
    return;
  }
  const auto keep = [&](auto&... all) {
    const auto one = [&](auto& each) {
      for (std::size_t piece = 0; piece < begins_.size(); ++piece) each[piece] = each[begins_[piece]];
      each.resize(begins_.size());
    };
    (one(all), ...);
  };
  keep(forward_, data_, filter_, reduce_, step_, kept_, under_way_, recomputed_, parted_, boundary_seconds_);
  const auto piece_of = [&](int layer) {
    return static_cast<int>(std::upper_bound(begins_.begin(), begins_.end(), layer) - begins_.begin()) - 1;
  };
  for (Sent& sent : sent_) {
    sent.piece = piece_of(sent.piece);
    for (int& reader : sent.readers) reader = piece_of(reader);
    sent.readers.erase(std::unique(sent.readers.begin(), sent.readers.end()), sent.readers.end());
  }
  sent_.erase(
      std::remove_if(sent_.begin(), sent_.end(), [](const Sent& sent) { return sent.readers.back() == sent.piece; }),
      sent_.end());
}

void StagePartitionCost::count_actions() {
  static_assert(kept_until_backward_filter == 1, "else backward_data frees a part");
  const auto groups = static_cast<std::size_t>(schedule_.groups());
  held_.assign(groups, 0);
  for (const auto& actions : schedule_.stages) {
    actions_ += actions.size();
    std::vector<int> forwards(groups, 0), now(groups, 0);
    for (const Action& action : actions) {
      using enum Action::Kind;
      const int g = action.group;
      if (action.kind == forward) {
        ++forwards[g];
        held_[g] = std::max(held_[g], ++now[g]);
      }
      if (action.kind == backward || action.kind == backward_filter) --now[g];
    }
    auto& counts = counts_.emplace_back();
    for (std::size_t g = 0; g < groups; ++g)
      if (forwards[g] > 0) counts.push_back({g, forwards[g]});
    count_until_drained(actions);
  }
}

void StagePartitionCost::count_until_drained(const std::vector<Action>& actions) {
  using enum Action::Kind;
  const auto computes_data = [](const Action& each) { return each.kind == backward || each.kind == backward_data; };
  const auto end = std::find_if(actions.rbegin(), actions.rend(), computes_data).base();
  UntilDrained& until = until_drained_.emplace_back();
  std::vector<UntilDrained::Actions> by_group(held_.size());
  for (auto action = actions.begin(); action != end; ++action) {
    UntilDrained::Actions& count = by_group[action->group];
    if (action->kind == forward) ++count.forward;
    if (computes_data(*action)) ++count.data;
    if (action->kind == backward || action->kind == backward_filter) ++count.filter;
    all_together_ = all_together_ && action->kind != backward_data;
    all_apart_ = all_apart_ && action->kind != backward;
  }
  if (end == actions.begin()) return;
  until.first = static_cast<std::size_t>(actions.front().group);
  until.last = static_cast<std::size_t>(std::prev(end)->group);
  for (std::size_t g = 0; g < by_group.size(); ++g) {
    by_group[g].group = g;
    if (by_group[g].forward > 0) until.actions.push_back(by_group[g]);
  }
}

double StagePartitionCost::boundary_seconds(int piece) const { return boundary_seconds_[piece]; }

double StagePartitionCost::seconds(int first, int end) const {
  return all(parted_[first].after) + all(parted_[end].before) + difference(forward_, first, end) +
         difference(data_, first, end) + difference(filter_, first, end) +
         (1 - farthest().overlap) * (boundary_seconds(first) + boundary_seconds(end));
}

/// Groups that begin earlier have more pieces. What crosses their first boundary takes 0 seconds or more.
double StagePartitionCost::least_seconds(int first, int end) const {
  constexpr double rounding = 1e-9;
  return (1 - rounding) * (least_parted_ + all(parted_[end].before) + difference(forward_, first, end) +
                           difference(data_, first, end) + difference(filter_, first, end));
}

Index StagePartitionCost::bytes(int group, int first, int end) const {
  return difference(kept_, first, end) + held_[group] * difference(under_way_, first, end) +
         difference(recomputed_, first, end);
}

template <class Bytes>
Index StagePartitionCost::on_fullest_stage(const std::vector<int>& ends, const Bytes& bytes) const {
  Index most = 0;
  for (const auto& counts : counts_) {
    Index all = 0;
    for (const auto& [g, count] : counts) all += bytes(static_cast<int>(g), g == 0 ? 0 : ends[g - 1], ends[g]);
    most = std::max(most, all);
  }
  return most;
}

Index StagePartitionCost::bytes(const std::vector<int>& ends) const {
  return on_fullest_stage(ends, [this](int group, int first, int end) { return bytes(group, first, end); });
}

Index StagePartitionCost::kept_bytes(const std::vector<int>& ends) const {
  return on_fullest_stage(ends, [this](int, int first, int end) { return difference(kept_, first, end); });
}

/// Each layer is in one group, and the fullest stage holds at least the mean. Every group is on as many stages.
Index StagePartitionCost::least_kept_bytes() const {
  const auto stages = static_cast<Index>(counts_.size());
  return kept_.back() * schedule_.replicas() / stages;
}

/// Each layer is in one group, of which some stage runs each microbatch, and the longest stage works at least the mean.
/// Transfers across the boundaries only add to that, and what they part does so by least_parted_ or more in each group.
/// Sums and updates are left out: they are estimated, and the bound must hold for the price of the bound plan.
double StagePartitionCost::least_work() const {
  const double layers = forward_.back() + data_.back() + filter_.back();
  const double parted = 2 * groups() * least_parted_;  // on both sides of each
  return schedule_.microbatches() * (layers + parted) / static_cast<double>(counts_.size());
}

StagePartitionCost::Groups StagePartitionCost::groups(const std::vector<int>& ends, bool edges) const {
  Groups groups;
  for (std::size_t g = 0; g < ends.size(); ++g) {
    const int first = g == 0 ? 0 : ends[g - 1], end = ends[g];
    groups.times.push_back({difference(forward_, first, end), difference(data_, first, end),
                            difference(filter_, first, end), difference(reduce_, first, end),
                            difference(step_, first, end)});
    for (const GroupTimes& parted : {parted_[first].after, parted_[end].before}) {
      groups.times.back().forward += parted.forward;
      groups.times.back().backward_data += parted.backward_data;
      groups.times.back().backward_filter += parted.backward_filter;
    }
  }
  add_transfers(ends, groups, edges);
  return groups;
}

/// A stage receives a layer's output once, for the first of its groups that reads it. Passing data between groups of
/// one stage is free.
void StagePartitionCost::add_transfers(const std::vector<int>& ends, Groups& groups, bool edges) const {
  std::map<std::pair<int, int>, EdgeTimes> feeds;  // by consumer, then producer, as GroupGraph numbers its edges
  const auto group_of = [&](int piece) {
    return static_cast<int>(std::upper_bound(ends.begin(), ends.end(), piece) - ends.begin());
  };
  const auto place = [&](int group) { return places_[0][group]; };
  std::vector<std::pair<int, int>> taken;  // the stages that have the output, and the group that receives it there
  for (const Sent& sent : sent_) {
    const int from = group_of(sent.piece);
    if (sent.readers.back() < ends[from]) continue;
    taken.assign(1, {place(from), from});
    for (const int reader : sent.readers) {
      const int to = group_of(reader);
      if (to == from) continue;
      const auto has = std::find_if(taken.begin(), taken.end(), [&](const auto& t) { return t.first == place(to); });
      const bool travels = has == taken.end();
      const int producer = travels ? from : has->second;
      const Boundary& link = between(place(from), place(to));
      const double seconds = link.seconds[sent.layer], busy = seconds * (1 - link.overlap) / 2;
      if (producer != to && edges) {
        EdgeTimes& edge = feeds[{to, producer}];
        const TransferTime overlapping{seconds * link.overlap, link.latency * link.overlap, link.level};
        if (travels) edge.output.add(overlapping);
        if (travels && sent.back) edge.gradient.add(overlapping);
      }
      if (!travels) continue;
      taken.emplace_back(place(to), to);
      for (const int group : {from, to}) {
        GroupTimes& times = groups.times[group];
        times.forward += busy;
        if (sent.back) times.backward_data += busy;
      }
    }
  }
  for (const auto& [edge, times] : feeds) {
    groups.edges.emplace_back(edge.second, edge.first);
    groups.transfers.push_back(times);
  }
}

double StagePartitionCost::after(std::size_t stage, const Groups& groups) const {
  double seconds = 0;
  for (const auto& [g, count] : counts_[stage]) seconds += groups.times[g].reduce + groups.times[g].step;
  return seconds;
}

double StagePartitionCost::work(const std::vector<int>& ends) const {
  const Groups groups = this->groups(ends, false);
  double most = 0;
  for (std::size_t stage = 0; stage < counts_.size(); ++stage) {
    double seconds = after(stage, groups);
    for (const auto& [g, count] : counts_[stage]) {
      const GroupTimes& times = groups.times[g];
      seconds += count * (times.forward + times.backward_data + times.backward_filter);
    }
    most = std::max(most, seconds);
  }
  return most;
}

/// A stage begins when a microbatch has passed through the groups before its first one. When it has computed its last
/// gradient of inputs, that still passes through the groups before, of which each then computes the rest.
double StagePartitionCost::least_makespan(const Groups& groups) const {
  const auto& times = groups.times;
  std::vector<double> begins(times.size(), 0), remains;  // by group
  for (const GroupTimes& each : times)
    remains.push_back((all_apart_ ? each.backward_filter : 0) + each.reduce + each.step);
  for (const auto& [from, to] : groups.edges) {  // ascending by consumer
    const GroupTimes& before = times[from];
    begins[to] = std::max(begins[to], begins[from] + before.forward);
    remains[to] =
        std::max(remains[to], before.backward_data + (all_together_ ? before.backward_filter : 0) + remains[from]);
  }
  double most = 0;
  for (std::size_t stage = 0; stage < counts_.size(); ++stage) {
    double all = after(stage, groups), drained = 0;
    for (const auto& [g, count] : counts_[stage])
      all += count * (times[g].forward + times[g].backward_data + times[g].backward_filter);
    const UntilDrained& until = until_drained_[stage];
    for (const auto& [g, forward, data, filter] : until.actions)
      drained += forward * times[g].forward + data * times[g].backward_data + filter * times[g].backward_filter;
    most = std::max(most, begins[until.first] + std::max(all, drained + remains[until.last]));
  }
  return most;
}

double StagePartitionCost::makespan(const std::vector<int>& ends, double most) {
  const Groups groups = this->groups(ends, true);
  if (const double least = least_makespan(groups); least > most) return least;
  auto& [edges, order] = run_;
  if (!order || edges != groups.edges) {
    edges = groups.edges;
    order = made_.order_of(request_, GroupGraph(this->groups(), edges), places_);
  }
  return order->makespan({groups.times, 0, groups.transfers});
}

}  // namespace partita
