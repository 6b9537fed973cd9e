#include "partita/strategies/planner/choose_products.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "strategies/cost/plan_pricer.hpp"
#include "strategies/declare/rule_values.hpp"

#include <algorithm>
#include <array>

namespace partita {

namespace {

/// A choice must save this share of the step, so that rounding decides nothing.
constexpr double least_saving = 1e-6;

/// The layers of products that share a binding and leave the algorithm open, each kind once.
struct Kind {
  int first = 0;
  std::vector<std::string> names;
  bool may_lay_out_weights = true;
};

/// The layout in which the first input arrives.
const Layout& arriving(const LayerPlan& layer) {
  const auto& steps = layer->redistribute_input.front();
  return steps.empty() ? layer->at.x.front() : steps.front().from;
}

bool cuts_channels(const Layout& layout) { return layout.shape().has('C') && layout.sharding('C') != 0; }

/// True if a product of the layer moves anything, and its input or output is cut by channels. If not, the strategy asks
/// for whole weights on every rank, which no choice of an algorithm should divide.
bool is_open(const LayerPlan& layer) {
  if (layer->at.products.empty() || !(cuts_channels(layer->y) || cuts_channels(arriving(layer)))) return false;
  const auto& products = layer->at.products;
  return std::any_of(products.begin(), products.end(), [](const ProductPlan& product) {
    return !product.alternatives.empty() && product.alternatives.front().words > 0;
  });
}

std::vector<Kind> kinds(const Plan& plan, const Strategy& strategy) {
  std::vector<Kind> all;
  for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) {
    const LayerPlan& layer = plan.layers[static_cast<std::size_t>(i)];
    if (plan.grid_of(i).size() == 1 || !is_open(layer)) continue;
    const LayerRule given = merged_rule(strategy, layer.name);
    if (given.algorithm) continue;
    const auto found = std::find_if(all.begin(), all.end(), [&](const Kind& kind) {
      return plan.layers[static_cast<std::size_t>(kind.first)].binding == layer.binding &&
             kind.may_lay_out_weights != given.weights.has_value();
    });
    if (found == all.end())
      all.push_back({i, {layer.name}, !given.weights.has_value()});
    else
      found->names.push_back(layer.name);
  }
  return all;
}

/// The layout of weights w[F C ...] that are cut as the channels of x[N C ...] arrive, e.g. "F C@c"; "" if these are
/// whole.
std::string weights_of_rows(const LayerPlan& layer) {
  const Layout& x = arriving(layer);
  if (!cuts_channels(x)) return "";
  std::string axes;
  int count = 0;
  for (const int axis : x.axes(x.shape().find('C')))
    axes += fmt::format("{}{}", count++ == 0 ? "" : ",", x.grid().name(axis));
  return count > 1 ? fmt::format("F C@({})", axes) : fmt::format("F C@{}", axes);
}

/// Prices strategies, and keeps the fastest.
class Search {
 public:
  Search(const Model& model, Strategy strategy, const Workload& workload, const Machine& machine,
         const KernelTimes& times)
      : model_(model),
        workload_(workload),
        machine_(machine),
        pricer_(machine, times),
        best_(std::move(strategy)),
        plan_(bind(model, best_, workload)) {
    set(pricer_.step(plan_));
  }

  const Plan& plan() const { return plan_; }
  const Strategy& best() const { return best_; }

  /// Tries all ways of one kind of layers.
  void choose(const Kind& kind) {
    const LayerPlan layer = plan_.layers[static_cast<std::size_t>(kind.first)];
    std::vector<std::optional<std::string>> weights{std::nullopt};
    if (const std::string rows = weights_of_rows(layer); kind.may_lay_out_weights && !rows.empty())
      weights.emplace_back(rows);
    const Strategy open = best_;
    for (const auto& layout : weights) {
      if (layout) try_rule(open, kind, {.weights = layout});
      // of y, dx and dw, one after the other
      std::array<Algorithm, 3> chosen{Algorithm::automatic, Algorithm::automatic, Algorithm::automatic};
      for (std::size_t product = 0; product < layer->at.products.size(); ++product)
        for (const Algorithm algorithm : layer.op->algorithms()) {
          if (!promises(layer, product, algorithm)) continue;
          auto tried = chosen;
          tried[product] = algorithm;
          const AlgorithmName name(tried[0], tried[1], tried[2]);
          if (try_rule(open, kind, {.weights = layout, .algorithm = name})) chosen = tried;
        }
    }
  }

 private:
  void set(const StepCost& cost) {
    seconds_ = cost.seconds;
    communication_ = cost.seconds - cost.parts.passes.compute;
  }

  /// True if an algorithm could save time: if its messages and words alone, over the fastest links, do not take longer
  /// than all communication of the step. It is costly to bind an algorithm with thousands of messages.
  bool promises(const LayerPlan& layer, std::size_t product, Algorithm algorithm) const {
    const auto& all = layer->at.products[product].alternatives;
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& way) { return way.algorithm == algorithm; });
    if (found == all.end()) return true;  // in other layouts of the weights it may exist
    double latency = machine_.levels.front().latency.value, bandwidth = 0;
    for (const Level& level : machine_.levels) {
      latency = std::min(latency, level.latency.value);
      bandwidth = std::max(bandwidth, level.bandwidth.value);
    }
    const double bytes = found->words * static_cast<double>(size_of(workload_.dtype));
    return found->messages * latency + bytes / bandwidth < communication_;
  }

  /// Returns true if the rule makes the step faster.
  bool try_rule(const Strategy& open, const Kind& kind, const LayerRule& rule) {
    Strategy strategy = open;
    for (const auto& name : kind.names) strategy.layer(name, rule, "chosen for the machine");
    Plan plan;
    try {
      plan = bind(model_, strategy, workload_);
    } catch (const Error&) {  // this algorithm cannot run in these layouts
      return false;
    }
    const StepCost taken = pricer_.step(plan);
    if (taken.seconds >= seconds_ * (1 - least_saving)) return false;
    set(taken);
    best_ = std::move(strategy);
    plan_ = std::move(plan);
    return true;
  }

  const Model& model_;
  const Workload& workload_;
  const Machine& machine_;
  PlanPricer pricer_;
  Strategy best_;
  Plan plan_;
  double seconds_ = 0, communication_ = 0;  // of a step
};

}  // namespace

Strategy choose_products(const Model& model, const Strategy& strategy, const Workload& workload, const Machine& machine,
                         const KernelTimes& times) {
  if (strategy.ranks() == 1) return strategy;
  Search search(model, strategy, workload, machine, times);
  for (const Kind& kind : kinds(search.plan(), strategy)) search.choose(kind);
  return search.best();
}

}  // namespace partita
