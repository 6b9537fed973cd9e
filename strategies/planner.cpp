#include "partita/strategies/planner.hpp"

#include "least_cost.hpp"
#include "partita/base/error.hpp"
#include "partita/strategies/balance.hpp"
#include "partita/strategies/generators.hpp"
#include "price.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <tuple>

namespace partita {

namespace {

std::vector<int> divisors(int n) {
  std::vector<int> all;
  for (int d = 1; d <= n; ++d)
    if (n % d == 0) all.push_back(d);
  return all;
}

/// How the ranks of one stage share a microbatch.
struct Shares {
  int data = 1, y = 1, x = 1, c = 1;
  int split() const { return y * x * c; }

  /// Axes of one rank are left out. `most_data` shortens the first, for pricing: blocks and messages stay what they are.
  std::string grid(int most_data = std::numeric_limits<int>::max()) const {
    std::string text;
    for (const auto& [name, extent] : {std::pair("data", std::min(data, most_data)), {"y", y}, {"x", x}, {"c", c}})
      if (extent > 1) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, extent);
    return text;
  }
};

/// "H@(y,x)" for those of the axes that the grid has; "" for none.
std::string word(char dim, const std::vector<std::pair<std::string, int>>& axes) {
  std::string text;
  int count = 0;
  for (const auto& [name, extent] : axes)
    if (extent > 1) text += fmt::format("{}{}", count++ == 0 ? "" : ",", name);
  if (count == 0) return "";
  return count == 1 ? fmt::format(" {}@{}", dim, text) : fmt::format(" {}@({})", dim, text);
}

/// The ways in which a layer can lie on a grid, as the text of a rule; each once. `spatial` are the two dimensions that y and x cut.
std::vector<std::string> patterns(const Shares& s, const std::string& spatial) {
  const std::pair<std::string, int> data{"data", s.data}, y{"y", s.y}, x{"x", s.x}, c{"c", s.c};
  const auto space = [&] {
    return (spatial.empty() ? "" : word(spatial[0], {y})) + (spatial.size() < 2 ? "" : word(spatial[1], {x}));
  };
  std::vector<std::string> all;
  for (const auto& text : {word('N', {data}) + space() + word('C', {c}), word('N', {data}) + space(),
                           word('N', {data, y, x}) + word('C', {c}), word('N', {data, y, x, c}),
                           word('N', {data}) + word('C', {y, x, c}), word('N', {data}) + word('C', {c})}) {
    const std::string rule = text.empty() ? "" : text.substr(1);
    if (std::find(all.begin(), all.end(), rule) == all.end()) all.push_back(rule);
  }
  return all;
}

/// One way to run the model, before it is bound whole.
struct Candidate {
  int stages = 1, microbatches = 1;
  Shares shares;
  std::vector<std::string> patterns;
  std::vector<int> ways;  // by layer, of these
  double seconds = 0;     // about
};

class Planner {
 public:
  Planner(const Model& model, const Workload& workload, const Machine& machine, const KernelTimes& times,
          const PlannerOptions& options)
      : model_(model),
        workload_(workload),
        machine_(machine),
        times_(times),
        options_(options),
        limit_(options.memory_limit > 0 ? options.memory_limit : static_cast<Index>(machine.memory.value)) {
    classes_ = classes();
    const Shape input = model.shapes(1)[0];
    for (int d = 0; d < input.dims(); ++d)
      if (is_spatial(input.name(d)) && spatial_.size() < 2) {
        spatial_ += input.name(d);
        (spatial_.size() == 1 ? most_y_ : most_x_) = static_cast<int>(std::min<Index>(input.extent(d), 1 << 14));
      }
  }

  std::vector<Planned> run() {
    const Cost serial = estimate(bind(model_, Strategy(), workload_), machine_, times_);
    ideal_ = serial.parts.passes.compute / options_.ranks;
    // What cannot come near the best even if it scaled perfectly is looked at only if nothing else fits.
    for (const double hopeless : {1.0, std::numeric_limits<double>::infinity()}) {
      search(hopeless);
      if (!found_.empty()) break;
    }
    if (found_.empty()) fail_unfit();
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Planned& a, const Planned& b) { return a.cost.seconds < b.cost.seconds; });
    const auto same = [](const Planned& a, const Planned& b) {  // grids that differ in the names of axes alone
      return std::abs(a.cost.seconds - b.cost.seconds) < 1e-4 * a.cost.seconds;
    };
    found_.erase(std::unique(found_.begin(), found_.end(), same), found_.end());
    found_.resize(std::min(found_.size(), static_cast<std::size_t>(options_.best)));
    return std::move(found_);
  }

 private:
  void search(double hopeless) {
    std::vector<Candidate> candidates;
    const auto ways = outlines();
    int done = 0;
    double best = std::numeric_limits<double>::infinity();
    for (const auto& outline : ways) {
      const double bubble = static_cast<double>(outline.microbatches + outline.stages - 1) / outline.microbatches;
      if (ideal_ * bubble < hopeless * best)
        if (auto candidate = choose_layouts(outline)) {
          best = std::min(best, candidate->seconds);
          candidates.push_back(std::move(*candidate));
        }
      if (options_.progress) options_.progress(++done, static_cast<int>(ways.size()));
    }
    if (candidates.empty())
      fail("no grid of {} ranks can run the model '{}' with a batch of {}; give another number of ranks",
           options_.ranks, model_.name(), workload_.batch);
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; });
    for (std::size_t i = 0;
         i < candidates.size() && (i < static_cast<std::size_t>(options_.examined) || found_.empty()); ++i)
      examine(candidates[i]);
  }

  /// Stages, microbatches and grids, without layouts.
  std::vector<Candidate> outlines() const {
    std::vector<Candidate> all;
    const auto layers = static_cast<int>(model_.layers().size());
    for (const int stages : divisors(options_.ranks)) {
      if (stages > layers || (stages > 1 && options_.kinds.empty())) continue;
      for (int times = 1; times <= 8; times *= 2) {
        const int microbatches = stages == 1 ? times : times * stages;
        if (microbatches > workload_.batch) continue;
        for (const Shares& shares : grids(options_.ranks / stages, per_microbatch(microbatches)))
          all.push_back({stages, microbatches, shares, patterns(shares, spatial_), {}, 0});
      }
    }
    return all;
  }

  Index per_microbatch(int microbatches) const { return (workload_.batch + microbatches - 1) / microbatches; }

  std::vector<Shares> grids(int ranks, Index samples) const {
    std::vector<Shares> all;
    for (const int data : divisors(ranks))
      for (const int y : divisors(ranks / data))
        for (const int x : divisors(ranks / data / y)) {
          const Shares shares{data, y, x, ranks / data / y / x};
          if (data <= samples && y <= most_y_ && x <= most_x_ && x <= y && shares.split() <= options_.most_split)
            all.push_back(shares);
        }
    return all;
  }

  /// The model on one stage's grid, all layers after one pattern; nothing if some layer cannot run so.
  std::optional<Plan> bind_pattern(const Candidate& outline, const std::string& pattern) const {
    constexpr int shortened = 2;
    const Index samples = per_microbatch(outline.microbatches);
    const int data = std::min(outline.shares.data, shortened);
    Workload block = workload_;
    block.batch = (samples + outline.shares.data - 1) / outline.shares.data * data;
    Strategy strategy(outline.shares.grid(shortened));
    strategy.layer("*", {.output = pattern});
    try {
      return bind(model_, strategy, block);
    } catch (const Error&) {  // a layout that some layer cannot run in is no candidate
      return std::nullopt;
    }
  }

  /// Every layer's cheapest pattern, with what lies between unlike ones.
  std::optional<Candidate> choose_layouts(Candidate outline) {
    std::vector<Plan> plans;
    std::vector<std::string> kept;
    for (const auto& pattern : outline.patterns)
      if (auto plan = bind_pattern(outline, pattern)) {
        plans.push_back(std::move(*plan));
        kept.push_back(pattern);
      }
    if (plans.empty()) return std::nullopt;
    outline.patterns = std::move(kept);
    std::vector<Price> prices;
    for (const auto& plan : plans) prices.emplace_back(plan, machine_, times_, false, (outline.shares.data + 1) / 2);
    ChoiceGraph graph;
    graph.nodes.resize(model_.layers().size());
    std::vector<std::vector<std::optional<double>>> known(plans.size());
    for (auto& of_pattern : known) of_pattern.resize(graph.nodes.size());
    Tables tables;
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      for (std::size_t p = 0; p < plans.size(); ++p)
        graph.nodes[i].push_back(node_cost(prices[p], static_cast<int>(i), outline.microbatches,
                                           known[p][static_cast<std::size_t>(classes_[i])]));
      for (std::size_t k = 0; k < model_.layers()[i].inputs.size(); ++k)
        graph.edges.push_back(edge(plans, prices, i, k, outline.microbatches, tables));
    }
    const Choice choice = least_cost(graph);
    outline.ways = choice.ways;
    outline.seconds = choice.cost / outline.stages * (outline.microbatches + outline.stages - 1) / outline.microbatches;
    return outline;
  }

  /// Layers of one class are alike, under one pattern, in all but the sums that they complete.
  std::vector<int> classes() const {
    std::map<std::string, int> numbers;
    std::vector<int> all;
    const auto shapes = model_.shapes(1);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const Layer& layer = model_.layers()[i];
      std::string text = fmt::format("{} {}", layer.op->kind(), layer.op->describe());
      for (const int input : layer.inputs)
        text += fmt::format(" {}{}", shapes[static_cast<std::size_t>(input)].print(), input == 0 ? " first" : "");
      all.push_back(numbers.try_emplace(std::move(text), static_cast<int>(numbers.size())).first->second);
    }
    return all;
  }

  /// Of all microbatches, without what is between layouts; by class, and what it completes.
  static double node_cost(const Price& price, int layer, int microbatches, std::optional<double>& of_class) {
    if (!of_class) {
      const LayerCost cost = price.layer(layer, false);
      of_class = cost.forward.total() + cost.backward_data.total() + cost.backward_filter.total() - cost.inputs;
    }
    return *of_class * microbatches + price.sums(layer).total();
  }

  using Tables = std::map<std::tuple<int, int, std::size_t>, std::vector<std::vector<double>>>;

  ChoiceGraph::Edge edge(const std::vector<Plan>& plans, const std::vector<Price>& prices, std::size_t layer,
                         std::size_t input, int microbatches, Tables& tables) {
    const int producer = model_.layers()[layer].inputs[input];
    const auto [found, fresh] =
        tables.try_emplace({classes_[static_cast<std::size_t>(producer)], classes_[layer], input});
    auto& costs = found->second;
    for (std::size_t from = 0; fresh && from < plans.size(); ++from) {
      auto& row = costs.emplace_back();
      const Layout& y = plans[from].layers[static_cast<std::size_t>(producer)].y;
      for (std::size_t p = 0; p < plans.size(); ++p) {
        const LayerPlan& to = plans[p].layers[layer];
        double seconds = between(prices[p], y, to.at.x[input]);
        if (workload_.training && to.needs_dx[input]) seconds += between(prices[p], to.at.dx[input], y.dual());
        row.push_back(seconds * microbatches);
      }
    }
    return {producer, static_cast<int>(layer), costs};
  }

  /// Of a redistribution on the first rank, which has the largest block.
  double between(const Price& price, const Layout& from, const Layout& to) {
    if (from == to) return 0;
    const std::string key = fmt::format("{}|{}|{}|{}|{}", from.grid().print(), from.shape().print(), from.print(),
                                        to.print(), price.widened());
    const auto [found, fresh] = redistributions_.try_emplace(key, 0);
    if (!fresh) return found->second;
    double seconds = 0;
    for (const auto& step : plan_redistribution(from, to))
      if (const Traffic moved = traffic(step, 0, size_of(workload_.dtype)); moved.messages > 0)
        seconds +=
            price.seconds({"x", step.verb, step.axes, moved, Pass::forward, Purpose::input, 0, from.grid().size() - 1},
                          from.grid(), 0);
    return found->second = seconds;
  }

  Strategy strategy_of(const Candidate& candidate) const {
    Strategy strategy(candidate.shares.grid());
    std::vector<int> count(candidate.patterns.size(), 0);
    for (const int way : candidate.ways) ++count[static_cast<std::size_t>(way)];
    const auto usual = static_cast<int>(std::max_element(count.begin(), count.end()) - count.begin());
    if (const auto& rule = candidate.patterns[static_cast<std::size_t>(usual)]; !rule.empty())
      strategy.layer("*", {.output = rule});
    const auto shapes = model_.shapes(1);
    for (std::size_t i = 0; i < candidate.ways.size(); ++i)
      if (candidate.ways[i] != usual && !model_.layers()[i].op->is_loss())
        strategy.layer(model_.layers()[i].name,
                       {.output = fitting(candidate.patterns[static_cast<std::size_t>(candidate.ways[i])], shapes[i])});
    return strategy;
  }

  /// A pattern's words of the dimensions that a shape has: a rule with a layer's name must fit it.
  static std::string fitting(const std::string& pattern, const Shape& shape) {
    std::string text;
    std::istringstream words(pattern);
    for (std::string word; words >> word;)
      if (shape.has(word[0])) text += text.empty() ? word : fmt::format(" {}", word);
    return text;
  }

  /// Binds and prices a candidate under each schedule; where it does not fit, with a shared update, and recomputing.
  void examine(const Candidate& candidate) {
    for (const auto& kind : candidate.stages == 1 ? std::vector<std::string>{"gpipe"} : options_.kinds) {
      const int groups = candidate.stages * schedule_kind(kind).groups_per_stage;
      if (groups > static_cast<int>(model_.layers().size())) continue;  // a kind with several groups a stage
      if (kind == "chimera" && candidate.stages % 2 != 0) continue;
      Strategy strategy = strategy_of(candidate);
      if (candidate.microbatches > 1) strategy.schedule(kind, candidate.microbatches);
      if (candidate.stages > 1) strategy.stages(candidate.stages);
      if (offer(strategy)) continue;
      strategy.update(Strategy::Update::distributed);
      if (offer(strategy)) continue;
      strategy.layer("*", {.recompute = true});
      offer(strategy);
    }
  }

  /// True if it fits.
  bool offer(const Strategy& strategy) {
    const Strategy placed = balanced(model_, strategy, workload_, machine_, times_);
    Cost cost = estimate(bind(model_, placed, workload_), machine_, times_);
    const bool fits = cost.memory.total <= limit_;
    if (!fits && cost.memory.total < least_.total) least_ = cost.memory;
    if (fits) found_.push_back({placed, std::move(cost)});
    return fits;
  }

  [[noreturn]] void fail_unfit() const {
    fail(
        "the model '{}' fits {} ranks with a batch of {} under no strategy that was tried: the smallest holds {} on a "
        "rank ({}), {} "
        "more than the limit of {}; give more ranks, a smaller batch, or ranks with more memory",
        model_.name(), options_.ranks, workload_.batch, print_bytes(least_.total), least_.each.print(),
        print_bytes(least_.total - limit_), print_bytes(limit_));
  }

  const Model& model_;
  Workload workload_;
  const Machine& machine_;
  const KernelTimes& times_;
  PlannerOptions options_;
  Index limit_;
  std::vector<int> classes_;  // of layers
  double ideal_ = 0;          // seconds of a step, if its computing scaled perfectly
  std::string spatial_;       // the dimensions that y and x cut
  int most_y_ = 1, most_x_ = 1;
  std::map<std::string, double> redistributions_;
  std::vector<Planned> found_;
  MemoryPeak least_{{}, std::numeric_limits<Index>::max()};
};

}  // namespace

std::vector<Planned> plan_strategies(const Model& model, const Workload& workload, const Machine& machine,
                                     const KernelTimes& times, const PlannerOptions& options) {
  if (options.ranks < 1) fail("a strategy for {} ranks; there must be 1 or more", options.ranks);
  return Planner(model, workload, machine, times, options).run();
}

}  // namespace partita
