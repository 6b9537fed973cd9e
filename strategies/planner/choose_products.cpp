#include "strategies/planner/choose_products.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "strategies/cost/piece_cost.hpp"
#include "strategies/cost/worst_ranks.hpp"
#include "strategies/declare/rule_values.hpp"
#include "strategies/plan/bind.hpp"
#include "strategies/plan/layer_ops.hpp"

#include <algorithm>
#include <array>
#include <map>

namespace partita {

namespace {

/// A choice must save this share of the step, so that rounding decides nothing.
constexpr double least_saving = 1e-6;
/// For so many layouts of the weights, the fastest ones, algorithms are tried too.
constexpr std::size_t most_layouts = 2;
/// With more axes than these, of which each may cut F, C or neither, only those that cut channels are moved.
constexpr std::size_t most_axes = 4;

/// Layers that are bound alike, on whatever stage, and leave something open, each kind once.
struct LayerKind {
  std::vector<int> layers;
  bool lays_out_weights = true, chooses_algorithm = true;
};

/// The layout in which the first input arrives.
const Layout& arriving(const LayerPlan& layer) {
  const auto& steps = layer->redistribute_input.front();
  return steps.empty() ? layer->at.x.front() : steps.front().from;
}

/// Returns the axes that cut the channels.
AxisList channel_axes(const Layout& layout) {
  AxisList axes;
  if (!layout.shape().has('C')) return axes;
  for (const int axis : layout.axes(layout.shape().find('C')))
    if (layout.grid().extent(axis) > 1) axes.push_back(axis);
  return axes;
}

/// The ways to run a product of a layer with products, or a layer without weights.
const std::vector<Alternative>& ways(const LayerPlan& layer, std::size_t product) {
  return layer->at.products.empty() ? layer->at.alternatives : layer->at.products[product].alternatives;
}

/// Returns the largest share of a layer's operations that another way to run it saves.
double most_saved(const LayerPlan& layer) {
  double share = 0;
  for (const Alternative& way : layer->at.alternatives)
    share = std::max(share, 1 - way.flops / layer->at.alternatives.front().flops);
  return share;
}

/// True if the input or the output of the layer is cut by channels, and something of its products travels. If not, the
/// strategy asks for whole weights on every rank, which no choice should divide. A layer without weights is open if
/// there are several ways to run it.
bool is_open(const LayerPlan& layer) {
  if (layer.op->algorithms().empty()) return false;
  if (layer->weights.empty()) return layer->at.alternatives.size() > 1;
  if (channel_axes(layer->y).empty() && channel_axes(arriving(layer)).empty()) return false;
  const auto& products = layer->at.products;
  return products.empty() || std::any_of(products.begin(), products.end(), [](const ProductPlan& product) {
           return !product.alternatives.empty() && product.alternatives.front().words > 0;
         });
}

bool alike(const Layout& a, const Layout& b) { return a.grid().same_axes(b.grid()) && a.on(b.grid()) == b; }

bool alike(const std::vector<Layout>& a, const std::vector<Layout>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Layout& one, const Layout& other) { return alike(one, other); });
}

/// True if two open layers differ in their stages alone. What is faster for one of them is seldom slower for the other,
/// and together they save what no stage saves while the step waits for the others.
bool alike(const LayerPlan& a, const LayerPlan& b) {
  if (a.binding == b.binding) return true;
  return equal_operators(*a.op, *b.op) && a->needs_dx == b->needs_dx && alike(a->at.x, b->at.x) &&
         alike(a->at.w, b->at.w) && alike(a->at.dw, b->at.dw) && alike(a->y, b->y) && alike(a->at.y, b->at.y) &&
         alike(arriving(a), arriving(b));
}

/// With `by_stage`, layers of a kind share a binding.
std::vector<LayerKind> kinds(const Model& model, const Plan& plan, const Strategy& strategy, bool by_stage = false) {
  const RuleValues weights = rule_values(model, strategy, [](const LayerRule& rule) { return rule.weights; });
  const RuleValues algorithms = rule_values(model, strategy, [](const LayerRule& rule) {
    return rule.algorithm ? std::optional(rule.algorithm->text()) : std::nullopt;
  });
  std::vector<LayerKind> all;
  for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) {
    const LayerPlan& layer = plan.layers[i];
    if (plan.grid_of(i).size() == 1 || !is_open(layer)) continue;
    const bool weighs = !layer->weights.empty();
    const LayerKind kind{
        {i}, weighs && layer.table < 0 && !weights.of_layer[i], !weighs || !layer->at.products.empty()};
    if (algorithms.of_layer[i] || !(kind.lays_out_weights || kind.chooses_algorithm)) continue;
    const auto found = std::find_if(all.begin(), all.end(), [&](const LayerKind& other) {
      const LayerPlan& first = plan.layers[other.layers.front()];
      return (by_stage ? first.binding == layer.binding : alike(first, layer)) &&
             other.lays_out_weights == kind.lays_out_weights && other.chooses_algorithm == kind.chooses_algorithm;
    });
    if (found == all.end())
      all.push_back(kind);
    else
      found->layers.push_back(i);
  }
  return all;
}

/// Returns the axes of `chosen`, first those that are in `nested`, in its order.
AxisList in_order_of(const AxisList& nested, AxisSet chosen) {
  AxisList axes;
  for (const int axis : nested) {
    if ((chosen >> axis & 1) == 0) continue;
    axes.push_back(axis);
    chosen &= ~(AxisSet{1} << axis);
  }
  for (int axis = 0; chosen >> axis != 0; ++axis)
    if ((chosen >> axis & 1) != 0) axes.push_back(axis);
  return axes;
}

/// Returns the axes that may cut the weights: those that cut the channels of x or y and, in a matrix product, all that
/// cut x or y.
std::vector<int> axes_of_weights(const LayerPlan& layer) {
  const Layout &x = arriving(layer), &y = layer->y;
  AxisSet channels = 0;
  for (const Layout* each : {&x, &y})
    for (const int axis : channel_axes(*each)) channels |= AxisSet{1} << axis;
  const auto list = [&](AxisSet set) {
    std::vector<int> axes;
    for (int axis = 0; axis < y.grid().axes(); ++axis)
      if ((set >> axis & 1) != 0 && y.grid().extent(axis) > 1) axes.push_back(axis);
    return axes;
  };
  if (layer->at.products.empty()) return list(channels);
  const std::vector<int> all = list(x.sharding() | y.sharding());
  return all.size() > most_axes ? list(channels) : all;
}

/// Returns the layouts of weights w[F C ...] in which each of the axes cuts F, C or neither, nested as in y and x.
std::vector<std::string> layouts_of_weights(const LayerPlan& layer) {
  const Shape& shape = layer->weights.front().shape;
  const std::vector<int> axes = axes_of_weights(layer);
  std::size_t count = 1;
  for (std::size_t i = 0; i < axes.size(); ++i) count *= 3;
  std::vector<std::string> all;
  for (std::size_t number = 0; number < count; ++number) {
    std::array<AxisSet, 3> cuts{};  // F, C, neither
    std::size_t rest = number;
    for (const int axis : axes) {
      cuts[rest % 3] |= AxisSet{1} << axis;
      rest /= 3;
    }
    all.push_back(Layout(shape, layer->y.grid())
                      .with(shape.find('F'), in_order_of(channel_axes(layer->y), cuts[0]))
                      .with(shape.find('C'), in_order_of(channel_axes(arriving(layer)), cuts[1]))
                      .print());
  }
  return all;
}

/// Prices strategies, and keeps the fastest.
class ProductSearch {
 public:
  ProductSearch(const SearchContext& context, Strategy strategy, Index memory_limit, bool by_stage)
      : context_(context),
        pricer_(*context.pricer),
        memory_limit_(memory_limit),
        by_stage_(by_stage),
        chosen_{std::move(strategy), {}},
        plan_(context.bind(chosen_.strategy)) {
    set(pricer_.step(plan_));
  }

  /// Chooses until nothing makes the step faster, so that the strategy found leaves nothing to choose.
  ChosenProducts best(double below) && {
    if (least() >= below) return std::move(chosen_);
    while (choose_for_kinds(false) || (by_stage_ && choose_for_kinds(true))) {
    }
    return std::move(chosen_);
  }

 private:
  /// A layout of the weights, or nothing where bind() chooses it, with the layer in it.
  struct Variant {
    std::optional<std::string> weights;
    LayerPlan layer;
    double seconds = 0;  // of a step, at least
  };

  /// Tries all kinds of layers that have not been tried since the last choice. Returns true if one makes the step
  /// faster.
  bool choose_for_kinds(bool by_stage) {
    bool faster = false;
    for (const LayerKind& kind : kinds(context_.model, plan_, chosen_.strategy, by_stage)) {
      const auto [at, first] = tried_.try_emplace(kind.layers, 0);
      if (!first && at->second == chosen_.choices.size()) continue;  // nothing has changed since
      faster = choose(kind) || faster;
      at->second = chosen_.choices.size();
    }
    return faster;
  }

  /// Tries all variants of one kind of layers. Returns true if one makes the step faster.
  bool choose(const LayerKind& kind) {
    const Strategy open = chosen_.strategy;
    const double before = seconds_;
    LayerRule best;
    const auto take = [&](const LayerRule& rule, std::vector<Variant>* variants) {
      if (try_rule(open, kind, rule, variants)) best = rule;
    };
    std::vector<Variant> variants{{{}, plan_.layers[kind.layers.front()]}};
    if (kind.lays_out_weights) {
      for (const auto& layout : layouts_of_weights(variants.front().layer)) take({.weights = layout}, &variants);
      std::stable_sort(variants.begin() + 1, variants.end(),
                       [](const Variant& a, const Variant& b) { return a.seconds < b.seconds; });
      variants.resize(std::min(variants.size(), 1 + most_layouts));
    }
    for (std::size_t i = 0; kind.chooses_algorithm && i < variants.size(); ++i) {
      // of y, dx and dw, one after the other
      std::array<Algorithm, 3> chosen{Algorithm::automatic, Algorithm::automatic, Algorithm::automatic};
      const auto products = std::max<std::size_t>(1, variants[i].layer->at.products.size());
      for (std::size_t product = 0; product < products; ++product)
        for (const Algorithm algorithm : variants[i].layer.op->algorithms()) {
          if (algorithm == Algorithm::whole) continue;  // what it saves in time is little, and its memory large
          if (!promises(variants[i].layer, product, algorithm)) continue;
          auto tried = chosen;
          tried[product] = algorithm;
          const LayerRule rule{.weights = variants[i].weights,
                               .algorithm = variants[i].layer->at.products.empty()
                                                ? AlgorithmName(algorithm)
                                                : AlgorithmName(tried[0], tried[1], tried[2])};
          if (!try_rule(open, kind, rule, nullptr)) continue;
          chosen = tried;
          best = rule;
        }
    }
    if (seconds_ == before) return false;
    ProductChoice choice{{}, best, before, seconds_};
    for (const int i : kind.layers) choice.layers.push_back(plan_.layers[i].name);
    chosen_.choices.push_back(std::move(choice));
    return true;
  }

  void set(const StepCost& cost) {
    seconds_ = cost.seconds;
    communication_ = cost.seconds - cost.parts.passes.compute;
    const CostParts& parts = cost.parts;
    open_ = parts.passes.product + parts.passes.redistribution + parts.transfers + parts.grad_reduce;
  }

  /// Returns the seconds of a step if what the open layers send for products, for layouts and once per step took no
  /// time, as if nothing hid it. Computing and halos count as they are.
  double least() {
    std::vector<bool> open(plan_.layers.size(), false);
    for (const LayerKind& kind : kinds(context_.model, plan_, chosen_.strategy))
      for (const int i : kind.layers) open[i] = true;
    const bool split = splits_backward(plan_.schedule);
    double saved = 0, computed = 0;  // the second where a layer without weights may compute less
    for (int i = 0; i < static_cast<int>(plan_.layers.size()); ++i) {
      if (!open[i]) continue;
      const LayerCost cost = pricer_.layer(plan_, i, split);
      for (const Pass pass : microbatch_passes)
        saved += plan_.microbatches * (cost_of(cost, pass).product + cost_of(cost, pass).redistribution);
      if (!plan_.layers[i]->weights.empty()) continue;
      for (const Pass pass : microbatch_passes)
        computed += plan_.microbatches * most_saved(plan_.layers[i]) * cost_of(cost, pass).compute;
    }
    const PieceCost price(plan_, pricer_.machine(), pricer_.times(), split);
    for (const Bucket& bucket : plan_.buckets) {  // of a bucket, the share of these layers
      Index elements = 0;
      for (const auto& [layer, weight] : bucket.entries)
        if (open[layer]) elements += plan_.layers[layer]->at.w[weight].elements(0);
      if (elements == 0) continue;
      const GradReduceCost sums = price.sums(bucket.last());
      saved += static_cast<double>(elements) / static_cast<double>(plan_.elements(bucket, 0)) *
               (sums.seconds + sums.replicas + sums.after + price.update(plan_.layers[bucket.last()].group));
    }
    return seconds_ - std::min(saved, open_) - computed;
  }

  /// True if an algorithm could save time: if its messages and words alone, over the fastest links, do not take longer
  /// than all communication of the step. It is costly to bind an algorithm with thousands of messages.
  bool promises(const LayerPlan& layer, std::size_t product, Algorithm algorithm) const {
    const auto& all = ways(layer, product);
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& way) { return way.algorithm == algorithm; });
    if (found == all.end()) return true;  // beside other algorithms of the other products it may exist
    if (layer->weights.empty() && found->flops < all.front().flops) return true;
    const auto& levels = pricer_.machine().levels;
    double latency = levels.front().latency.value, bandwidth = 0;
    for (const Level& level : levels) {
      latency = std::min(latency, level.latency.value);
      bandwidth = std::max(bandwidth, level.bandwidth.value);
    }
    const double bytes = found->words * static_cast<double>(size_of(context_.workload.dtype));
    return found->messages * latency + bytes / bandwidth < communication_;
  }

  /// Returns true if the rule makes the step faster, and keeps it then. Adds the variant to `variants` if it can run.
  bool try_rule(const Strategy& open, const LayerKind& kind, const LayerRule& rule, std::vector<Variant>* variants) {
    Strategy strategy = open;
    for (const int i : kind.layers) strategy.layer(plan_.layers[i].name, rule, "chosen for the machine");
    Plan plan;
    try {
      plan = context_.bind(strategy);
    } catch (const Error&) {  // this cannot run in these layouts
      return false;
    }
    const double most = seconds_ * (1 - least_saving), least = pricer_.step_at_least(plan).seconds;
    if (variants != nullptr) variants->push_back({rule.weights, plan.layers[kind.layers.front()], least});
    if (least >= most) return false;
    const StepCost taken = pricer_.step(plan);
    if (taken.seconds >= most) return false;
    if (memory_limit_ > 0) {
      if (!held_) held_ = fullest_rank(plan_).memory.total;
      const Index held = fullest_rank(plan).memory.total;
      if (held > std::max(*held_, memory_limit_)) return false;
      held_ = held;
    }
    set(taken);
    chosen_.strategy = std::move(strategy);
    plan_ = std::move(plan);
    return true;
  }

  const SearchContext& context_;
  PlanPricer& pricer_;
  Index memory_limit_;
  bool by_stage_;
  ChosenProducts chosen_;
  std::map<std::vector<int>, std::size_t> tried_;  // by a kind's layers: the number of choices at that time
  Plan plan_;
  std::optional<Index> held_;               // bytes; known once a choice must keep a limit
  double seconds_ = 0, communication_ = 0;  // of a step
  double open_ = 0;                         // seconds of a step that all layers send, halos apart
};

}  // namespace

ChosenProducts choose_products(const SearchContext& context, const Strategy& strategy, Index memory_limit,
                               bool by_stage, double below) {
  if (strategy.ranks() == 1) return {strategy, {}};
  return ProductSearch(context, strategy, memory_limit, by_stage).best(below);
}

ChosenProducts choose_products(const Model& model, const Strategy& strategy, const Workload& workload,
                               const Machine& machine, const KernelTimes& times, Index memory_limit) {
  return choose_products({model, workload, machine, times}, strategy, memory_limit, true);
}

}  // namespace partita
