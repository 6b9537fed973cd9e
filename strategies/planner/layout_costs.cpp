// The search's estimate of a step, for a choice of one layout pattern for each layer:
//
//     seconds = sum over layers of   microbatches * (computing and messages inside the layer)
//                                  + exposed gradient sums
//             + sum over edges of    microbatches * redistribution from the producer's pattern to the layer's
//
// Each term is the price of a piece of a bound plan (PieceCost), with the routes of the true grid. Three things make it
// an estimate: grids that differ in the data axis alone are bound once, with two ranks along it (`shortened`); buckets
// are taken as equally full; the exposed part of the sums depends on the whole step, and is a share that the caller
// gives. The best candidates are then bound and priced exactly by CostFormula.
#include "strategies/planner/layout_costs.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/piece_cost.hpp"
#include "strategies/plan/bind.hpp"
#include "strategies/plan/stages.hpp"

#include <algorithm>

namespace partita {

namespace {

/// Grids are bound with at most this many ranks along the data axis: two ranks stand for any larger number.
constexpr int shortened = 2;

Shares with_short_data(Shares shares) {
  shares.data = std::min(shares.data, shortened);
  return shares;
}

/// Returns true if some dimension has fewer elements than blocks.
bool leaves_empty(const Layout& layout) {
  for (int d = 0; d < layout.shape().dims(); ++d)
    if (layout.shape().extent(d) < layout.grid().group_size(layout.sharding(d))) return true;
  return false;
}

/// Returns the traffic of an exchange on its busiest rank: what the rank that lacks most receives, or what the first
/// rank sends if that is more. The first rank may send more if a dimension has fewer elements than ranks: it then owns
/// all of them and receives nothing. The sends are computed only in that case, because they require a look at every
/// rank.
Traffic exchanged(const RedistributionStep& step, Index element) {
  const Index lacking = most_missing(step.from, step.to) * element;
  const Traffic in{std::max<Index>(received(step, 0, element).messages, lacking > 0 ? 1 : 0), lacking};
  if (!leaves_empty(step.from) && !leaves_empty(step.to)) return in;
  const Traffic out = traffic(step, 0, element);
  return out.bytes > in.bytes ? out : in;
}

/// Divides what the first rank exchanges evenly among the ranks that differ from it along some axes.
std::vector<PeerTraffic> spread(const Traffic& moved, const Grid& grid, AxisSet axes) {
  const std::vector<int> group = grid.group(0, axes);
  const auto others = static_cast<Index>(group.size()) - 1;
  std::vector<PeerTraffic> peers;
  for (Index i = 0; i < moved.messages; ++i) {
    const Index each = moved.bytes / moved.messages, last = i + 1 == moved.messages ? moved.bytes % moved.messages : 0;
    peers.push_back({group[1 + i * others / moved.messages], {1, each + last}, {}});
  }
  return peers;
}

}  // namespace

/// Numbers distinct layouts, and computes the cost of each redistribution between two of them once.
class LayoutCosts::Moves {
 public:
  /// `price` is that of any plan on the grid.
  explicit Moves(PieceCost price) : price_(std::move(price)) {}

  const PieceCost& price() const { return price_; }
  std::size_t number(const Layout& layout) {
    auto& candidates = by_volume_[layout.shape().volume()];
    for (const std::size_t known : candidates)
      if (layouts_[known] == layout) return known;
    candidates.push_back(layouts_.size());
    layouts_.push_back(layout);
    return candidates.back();
  }
  /// Returns compute(from, to), computed on the first call and remembered.
  template <class Compute>
  double seconds(std::size_t from, std::size_t to, const Compute& compute) {
    if (from == to) return 0;
    const auto [found, fresh] = known_.try_emplace({from, to});
    if (fresh) found->second = compute(layouts_[from], layouts_[to]);
    return found->second;
  }

 private:
  PieceCost price_;
  std::vector<Layout> layouts_;
  std::map<Index, std::vector<std::size_t>> by_volume_;
  std::map<std::pair<std::size_t, std::size_t>, double> known_;
};

LayoutCosts::BoundPatterns LayoutCosts::bind_patterns(const Shares& shares, Index samples) {
  const Shares on = with_short_data(shares);
  BoundPatterns bound;
  Workload block = context_.workload;
  block.batch = samples * on.data;
  for (const LayoutPattern& pattern : layout_patterns(shares, spatial_))
    bind_pattern(bound, {shares.grid(), pattern.rule(), "", false}, pattern, Strategy(on.grid()), block);
  add_shortened(bound, on);
  return bound;
}

/// Binds a pattern. A layer that cannot run in it gets the largest part of it in which it can run, and costs only
/// itself; if there is none, the pattern is left out.
void LayoutCosts::bind_pattern(BoundPatterns& bound, LeftOut left_out, const LayoutPattern& pattern, Strategy strategy,
                               const Workload& block) {
  strategy.layer("*", {.output = pattern.rule()});
  const std::vector<LayoutPattern> smaller = pattern.smaller();
  const auto shapes = classes_.model.shapes(1);
  std::map<int, std::size_t> tried;  // by class: how many smaller patterns
  for (bool runs = false; !runs;) try {
      bound.plans.push_back(bind_layers(classes_.model, strategy, block));
      runs = true;
    } catch (const LayerRefused& refused) {
      const auto c = static_cast<std::size_t>(refused.layer);
      if (tried.empty()) left_out.why = refused.what();
      std::size_t& next = tried[refused.layer];
      if (next == smaller.size()) return leave_out(std::move(left_out));
      strategy.layer(classes_.model.layers()[c].name, {.output = smaller[next++].of(shapes[c]).rule()});
    }
  for (const auto& [c, count] : tried) bound.costs.instead[{c, bound.costs.patterns.size()}] = smaller[count - 1];
  left_out.still_tried = true;
  if (!tried.empty()) leave_out(std::move(left_out));
  bound.costs.patterns.push_back(pattern);
}

/// Records a pattern once per grid, whatever the number of samples.
void LayoutCosts::leave_out(LeftOut pattern) {
  if (std::none_of(left_out_.begin(), left_out_.end(), [&](const LeftOut& known) {
        return known.grid == pattern.grid && known.pattern == pattern.pattern;
      }))
    left_out_.push_back(std::move(pattern));
}

const CandidateLayoutCosts& LayoutCosts::costs(const Shares& shares, Index samples) {
  if (const auto found = costs_.find({shares, samples}); found != costs_.end()) return found->second;
  const auto [bound, fresh] = bound_.try_emplace({with_short_data(shares), samples});
  if (fresh) bound->second = bind_patterns(shares, samples);
  return costs_.try_emplace({shares, samples}, with_data_axis(bound->second, shares)).first->second;
}

void LayoutCosts::add_shortened(BoundPatterns& bound, const Shares& shares) const {
  const std::size_t layers = classes_.model.layers().size(), patterns = bound.plans.size();
  CandidateLayoutCosts& costs = bound.costs;
  costs.microbatch.assign(layers, std::vector<double>(patterns));
  bound.sums.assign(layers, false);
  for (std::size_t p = 0; p < patterns; ++p) {
    const PieceCost price(bound.plans[p], context_.machine, context_.times, false, &bound.plans[p].grid());
    for (std::size_t i = 0; i < layers; ++i) {
      costs.microbatch[i][p] = microbatch(price, i);
      for (const auto& item : microbatch_traffic(bound.plans[p], static_cast<int>(i), 0))
        if (shares.data > 1 && item.verb != Verb::exchange && (item.axes & 1U) != 0) bound.sums[i] = true;
    }
  }
  costs.between = std::make_shared<const CandidateLayoutCosts::Between>(redistributions(bound.plans));
}

/// Returns the costs on a grid whose data axis has its true extent.
CandidateLayoutCosts LayoutCosts::with_data_axis(const BoundPatterns& bound, const Shares& shares) const {
  CandidateLayoutCosts costs = bound.costs;
  const std::size_t layers = classes_.model.layers().size(), patterns = bound.plans.size();
  costs.sums.assign(layers, std::vector<double>(patterns));
  costs.exposed_comm = costs.leaving = costs.sums;
  const Grid whole = Grid::parse(shares.grid());
  for (std::size_t p = 0; p < patterns; ++p) {
    const PieceCost price(bound.plans[p], context_.machine, context_.times, false, &whole);
    SumRates rates;
    for (std::size_t i = 0; i < layers; ++i) {
      const LayerPlan& layer = bound.plans[p].layers[i];
      if (bound.sums[i] && shares.data > shortened) costs.microbatch[i][p] = microbatch(price, i);
      std::tie(costs.sums[i][p], costs.exposed_comm[i][p]) = gradient_sums(price, layer, rates);
      costs.leaving[i][p] = leaving(price, layer, shares.data * shares.split());
    }
  }
  return costs;
}

/// Seconds of one microbatch in a layer, without redistributions between layouts.
double LayoutCosts::microbatch(const PieceCost& price, std::size_t layer) const {
  const LayerCost cost = price.layer(static_cast<int>(layer), false);
  return cost.forward.total() + cost.backward_data.total() + cost.backward_filter.total() - cost.inputs;
}

/// Seconds to send an output from the first rank to the next stage, `ranks` ranks away.
double LayoutCosts::leaving(const PieceCost& price, const LayerPlan& layer, int ranks) const {
  const Layout& y = layer->y;
  const Traffic left{1, y.owned(0).volume() * size_of(layer.op->output_type(context_.workload.dtype))};
  return price.seconds({"y", Verb::exchange, y.grid().all(), left, Pass::stages, Purpose::stages, {{ranks, left, {}}}},
                       y.grid(), 0);
}

CandidateLayoutCosts::Between LayoutCosts::redistributions(const std::vector<Plan>& plans) const {
  CandidateLayoutCosts::Between tables;
  if (plans.empty()) return tables;
  Moves moves(PieceCost(plans.front(), context_.machine, context_.times, false, &plans.front().grid()));
  for (std::size_t i = 0; i < context_.model.layers().size(); ++i)
    for (std::size_t k = 0; k < context_.model.layers()[i].inputs.size(); ++k) {
      const int from = classes_.of_layer[context_.model.layers()[i].inputs[k]];
      const int to = classes_.of_layer[i];
      const auto [found, fresh] = tables.try_emplace({from, to, k});
      if (fresh) found->second = redistribution_table(plans, from, to, k, moves);
    }
  return tables;
}

double LayoutCosts::collectives(int data) {
  const auto [found, fresh] = collectives_.try_emplace(data, 0.0);
  double& seconds = found->second;
  if (!fresh || data == 1) return seconds;
  Workload block = context_.workload;
  block.batch = data;
  Strategy samples(fmt::format("data={}", data));
  samples.layer("*", {.output = "N@data"});
  Plan plan;
  try {
    plan = bind_layers(classes_.model, samples, block);
  } catch (const LayerRefused&) {  // then no number of seconds is certain
    return seconds;
  }
  const PieceCost price(plan, context_.machine, context_.times, false);
  const Index element = size_of(DType::f64);
  for (std::size_t c = 0; c < plan.layers.size(); ++c)
    for (const auto& each : plan.layers[c]->at.collectives)
      if (plan.grid().group_size(each.axes) > 1)
        seconds +=
            classes_.occurrences[c] *
            price.seconds(
                {each.role, Verb::all_reduce, each.axes, {1, element}, Pass::forward, Purpose::statistics, {}, {}},
                plan.grid(), 0);
  return seconds;
}

/// Returns the redistribution costs, indexed by the pattern of class `from` and that of class `to`, which reads it as
/// input k.
std::vector<std::vector<double>> LayoutCosts::redistribution_table(const std::vector<Plan>& plans, int from, int to,
                                                                   std::size_t k, Moves& moves) const {
  struct Ends {
    std::size_t y, x, dx, dy;
    bool back;
  };
  std::vector<Ends> ends;
  for (const Plan& plan : plans) {
    const Layout& y = plan.layers[from]->y;
    const LayerPlan& layer = plan.layers[to];
    ends.push_back({moves.number(y), moves.number(layer->at.x[k]), moves.number(layer->at.dx[k]),
                    moves.number(y.dual()), context_.workload.training && layer->needs_dx[k]});
  }
  const Index element = size_of(plans.front().layers[from].op->output_type(context_.workload.dtype));
  std::vector<std::vector<double>> table;
  for (const Ends& producer : ends) {
    auto& row = table.emplace_back();
    for (std::size_t b = 0; b < plans.size(); ++b) {
      const auto seconds = [&](const Layout& have, const Layout& need) {
        return redistribution(moves.price(), have, need, element);
      };
      row.push_back(moves.seconds(producer.y, ends[b].x, seconds));
      if (ends[b].back) row.back() += moves.seconds(ends[b].dx, producer.dy, seconds);
    }
  }
  return table;
}

/// Estimates the bytes of a gradient bucket, assuming that each bucket is as full as possible.
double LayoutCosts::bucket_bytes() const {
  Index all = 0;
  const auto shapes = context_.model.shapes(1);
  for (int i = 0; i < static_cast<int>(context_.model.layers().size()); ++i)
    for (const auto& weight : context_.model.layers()[i].op->weights(context_.model.inputs_of(i, shapes)))
      if (weight.trained) all += weight.shape.volume() * size_of(master_dtype(context_.workload.dtype));
  int buckets = 0;
  BucketCap cap(Strategy().bucket_bytes());
  for (Index left = all; left > 0; left -= cap.bytes(), cap.next()) ++buckets;
  return static_cast<double>(all) / std::max(buckets, 1);
}

/// Returns two numbers of seconds for a layer's gradient sums: in total, as its share of full buckets, and the part
/// that no computation can hide.
std::pair<double, double> LayoutCosts::gradient_sums(const PieceCost& price, const LayerPlan& layer,
                                                     SumRates& rates) const {
  if (!context_.workload.training) return {};
  const Index master = size_of(master_dtype(context_.workload.dtype));
  double all = 0, waits = 0;
  for (std::size_t w = 0; w < layer->weights.size(); ++w) {
    const AxisSet axes = layer->weights[w].trained ? layer->at.dw[w].partial() : 0;
    if (layer->at.w[w].grid().group_size(axes) == 1) continue;
    const auto [found, fresh] = rates.try_emplace(axes);
    auto& [of_byte, overlap] = found->second;
    if (fresh) {
      const PlannedTraffic full{"dw",         Verb::all_reduce, axes, {1, static_cast<Index>(bucket_)},
                                Pass::update, Purpose::sum};
      const Grid& grid = layer->at.w[w].grid();
      of_byte = price.seconds(full, grid, 0) / bucket_;
      overlap = price.overlap(full, grid, 0);
    }
    const double seconds = of_byte * static_cast<double>(layer->at.w[w].owned(0).volume() * master);
    all += seconds;
    waits += seconds * (1 - overlap);
  }
  return {all, waits};
}

/// Seconds of a redistribution. Steps that are not exchanges are estimated on the first rank, which has the largest
/// block.
double LayoutCosts::redistribution(const PieceCost& price, const Layout& from, const Layout& to, Index element) const {
  double seconds = 0;
  const Grid& grid = from.grid();
  for (const auto& step : plan_redistribution(from, to)) {
    const Traffic moved = step.verb == Verb::exchange ? exchanged(step, element) : traffic(step, 0, element);
    if (moved.messages == 0) continue;
    PlannedTraffic item{"x", step.verb, step.axes, moved, Pass::forward, Purpose::input};
    if (step.verb == Verb::exchange) item.peers = spread(moved, grid, step.axes);
    seconds += price.seconds(item, grid, 0);
  }
  return seconds;
}

std::pair<double, double> LayoutCosts::lower_bound(const CandidateLayoutCosts& costs, int microbatches,
                                                   int stages) const {
  double seconds = 0, longest = 0;
  for (std::size_t c = 0; c < costs.microbatch.size(); ++c) {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t p = 0; p < costs.patterns.size(); ++p)
      least = std::min(least, costs.microbatch[c][p] * microbatches + costs.exposed_comm[c][p] / stages);
    seconds += least * classes_.occurrences[c];
    longest = std::max(longest, least);
  }
  return {seconds, longest};
}

std::map<std::pair<std::size_t, int>, LayoutPattern> LayoutCosts::instead(const CandidateLayoutCosts& costs) const {
  std::map<std::pair<std::size_t, int>, LayoutPattern> all;
  for (const auto& [place, layout] : costs.instead)
    for (std::size_t i = 0; i < classes_.of_layer.size(); ++i)
      if (classes_.of_layer[i] == place.first) all[{i, static_cast<int>(place.second)}] = layout;
  return all;
}

std::vector<double> LayoutCosts::boundary_seconds(const CandidateLayoutCosts& costs,
                                                  const std::vector<int>& pattern_of_layer) const {
  const auto& layers = context_.model.layers();
  std::vector<std::size_t> last(layers.size(), 0);  // the last layer that reads each layer's output
  for (std::size_t i = 0; i < layers.size(); ++i)
    for (const int input : layers[i].inputs) last[input] = i;
  std::vector<double> seconds(layers.size(), 0);
  for (std::size_t i = 0; i < layers.size(); ++i)
    for (std::size_t before = i + 1; before <= last[i]; ++before)
      seconds[before] += costs.leaving[classes_.of_layer[i]][pattern_of_layer[i]];
  return seconds;
}

double LayoutCosts::exposed_comm(const CandidateLayoutCosts& costs, const std::vector<int>& pattern_of_layer,
                                 double backward) const {
  double all = 0, waits = 0;
  for (std::size_t i = 0; i < pattern_of_layer.size(); ++i) {
    const auto c = static_cast<std::size_t>(classes_.of_layer[i]), p = static_cast<std::size_t>(pattern_of_layer[i]);
    all += costs.sums[c][p];
    waits += costs.exposed_comm[c][p];
  }
  return waits + std::max(0.0, all - waits - backward);
}

std::vector<double> LayoutCosts::seconds_of_layers(const CandidateLayoutCosts& costs, const ChoiceGraph& graph,
                                                   const std::vector<int>& pattern_of_layer) const {
  auto seconds = costs_of(graph, pattern_of_layer);
  for (std::size_t i = 0; i < pattern_of_layer.size(); ++i)
    seconds[i] -= costs.exposed_comm[classes_.of_layer[i]][pattern_of_layer[i]];
  return seconds;
}

ChoiceGraph LayoutCosts::graph(const CandidateLayoutCosts& costs, int microbatches, double exposed) const {
  ChoiceGraph graph;
  for (std::size_t i = 0; i < context_.model.layers().size(); ++i) {
    const auto c = static_cast<std::size_t>(classes_.of_layer[i]);
    auto& node = graph.nodes.emplace_back();
    for (std::size_t p = 0; p < costs.patterns.size(); ++p)
      node.push_back(costs.microbatch[c][p] * microbatches + costs.exposed_comm[c][p] +
                     exposed * (costs.sums[c][p] - costs.exposed_comm[c][p]));
    for (std::size_t k = 0; k < context_.model.layers()[i].inputs.size(); ++k) {
      const int producer = context_.model.layers()[i].inputs[k];
      auto table = costs.between->at({classes_.of_layer[producer], static_cast<int>(c), k});
      for (auto& row : table)
        for (double& seconds : row) seconds *= microbatches;
      graph.edges.push_back({producer, static_cast<int>(i), std::move(table)});
    }
  }
  return graph;
}

}  // namespace partita
