#include "partita/strategies/planner/planner.hpp"
#include "partita/strategies/cost/cost_formula.hpp"
#include "partita/strategies/plan/bind.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/schedule/generators.hpp"
#include "strategies/plan/stages.hpp"
#include "strategies/planner/layout_costs.hpp"
#include "strategies/planner/linear_partition.hpp"
#include "strategies/planner/memory_limited.hpp"
#include "strategies/planner/stage_search.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <queue>
#include <set>
#include <sstream>
#include <tuple>

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
/// Spatial dimensions are not split into more parts than this, whatever the image: no grid of ranks has a longer axis.
constexpr Index most_parts = 1 << 14;
/// The schedule kind whose stages each hold two groups of layers.
constexpr ScheduleKind chimera = ScheduleKind::chimera;

/// Returns the divisors of n in ascending order.
std::vector<int> divisors(int n) {
  std::vector<int> all, larger;
  for (int d = 1; d <= n / d; ++d) {
    if (n % d != 0) continue;
    all.push_back(d);
    if (d < n / d) larger.push_back(n / d);
  }
  all.insert(all.end(), larger.rbegin(), larger.rend());
  return all;
}

/// One way to run the model, before it is bound. `known` says how good its time estimate is.
struct Candidate {
  int stages = 1, microbatches = 1;
  Shares shares;
  double seconds = 0;  // estimated seconds of a step: at first a lower bound
  /// ideal: even shares of computation; bound: a lower bound from layer costs; layouts: an estimate for chosen layouts
  enum class Known { ideal, bound, layouts } known = Known::ideal;
  std::vector<std::string> patterns{};
  std::vector<int> ways{};  // by layer: index into `patterns`
  double even = 0;          // seconds that each stage works if all stages work equally long

  /// Seconds of a step in which microbatches pass through all stages one after the other. The first microbatch passes
  /// through all stages, and the transfers between them forward and backward. The other microbatches follow at the pace
  /// of the longest stage and the longest transfer. `work` and `longest_stage` are the seconds of all microbatches in a
  /// step.
  double pipelined(double work, double longest_stage, const std::vector<double>& transfers = {}) const {
    const double between = transfers.empty() ? 0 : *std::max_element(transfers.begin(), transfers.end());
    return work / microbatches + 2 * std::accumulate(transfers.begin(), transfers.end(), 0.0) +
           (microbatches - 1) * (std::max(longest_stage, work / stages) / microbatches + between);
  }
  // a priority queue then begins with the shortest
  bool operator<(const Candidate& other) const { return seconds > other.seconds; }
};

/// Estimates computation on a rank that has an even share of every layer: smaller kernels, each launched separately.
class Computing {
 public:
  Computing(const Model& model, const Workload& workload, const Machine& machine, const KernelTimes& times)
      : whole_(bind(model, Strategy(), workload)), formula_(whole_, machine, times), machine_(machine) {}

  /// Returns the seconds of all layers, and of the longest layer, for a share of the work. This is `share` times the
  /// time of the whole model on a modified machine: its kernels take 1/share times as long to launch, and are as
  /// inefficient as kernels of the smaller size.
  std::pair<double, double> seconds(double share) const {
    Machine machine = machine_;
    machine.kernel.value /= share;
    for (auto& [kind, curve] : machine.efficiency)
      for (auto& point : curve.points) point.first /= share;
    double all = 0, longest = 0;
    for (const auto& layer : formula_.cost(machine).layers) {
      const double one = layer.forward.compute + layer.backward_data.compute + layer.backward_filter.compute;
      all += one;
      longest = std::max(longest, one);
    }
    return {share * all, share * longest};
  }

 private:
  Plan whole_;
  CostFormula formula_;
  const Machine& machine_;
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
        best_(model, workload, machine, times, options) {
    const Shape input = model.shapes(1)[0];
    for (int d = 0; d < input.dims(); ++d)
      if (is_spatial(input.name(d)) && spatial_.size() < 2) {
        spatial_ += input.name(d);
        (spatial_.size() == 1 ? most_y_ : most_x_) = static_cast<int>(std::min<Index>(input.extent(d), most_parts));
      }
  }

  std::vector<Planned> run() {
    search();
    if (best_.found().empty()) best_.fail_unfit();
    return best_.found();
  }

 private:
  /// A candidate as a strategy whose stages are not placed yet, with an estimate of its step time. It may exceed the
  /// memory limit.
  struct Offer {
    Strategy strategy;
    double seconds = 0;
  };

  /// Best-first search: refines the candidate with the shortest estimate until the fastest strategies are known. Most
  /// outlines are never refined.
  void search() {
    std::priority_queue<Candidate> queue;
    for (auto& outline : outlines()) queue.push(std::move(outline));
    LayoutCosts layout_costs(model_, workload_, machine_, times_, spatial_);
    int examined = 0, rounds = 0;
    bool offered = false;                         // whether any candidate has had a schedule
    std::set<std::tuple<int, int, double>> seen;  // equal seconds: the same strategy with other names of axes
    for (; !queue.empty() && !best_.done(queue.top().seconds) && (rounds < options_.rounds || !offered); ++rounds) {
      std::vector<Offer> offers, two_replicas;
      for (int last = examined + options_.examined; !queue.empty() && examined < last;) {
        const Candidate candidate = queue.top();
        queue.pop();
        if (candidate.known != Candidate::Known::layouts) {
          for (auto& more : refined(candidate, layout_costs)) queue.push(std::move(more));
          continue;
        }
        if (!seen.emplace(candidate.stages, candidate.microbatches, candidate.seconds).second) continue;
        examine(candidate, offers, two_replicas);
        ++examined;
        if (options_.progress) options_.progress(examined, last);
      }
      offered = offered || !offers.empty() || !two_replicas.empty();
      offer(offers);
      std::erase_if(two_replicas, [&](const Offer& each) { return !best_.would_keep(each.seconds); });
      for (auto& each : two_replicas)
        each.seconds = price(bind_single_stage(model_, each.strategy, workload_), each.strategy).seconds;
      offer(two_replicas);
    }
    for (const auto& each : layout_costs.left_out())
      if (options_.left_out) options_.left_out(each);
    if (!offered && examined > 0) {
      std::string kinds;
      for (const ScheduleKind kind : options_.kinds) kinds.append(kinds.empty() ? "" : ", ").append(name(kind));
      fail("no schedule of the kinds {} fits {} ranks and the {} layers of the model '{}'", kinds, options_.ranks,
           model_.layers().size(), model_.name());
    }
    if (examined == 0)
      fail("no grid of {} ranks can run the model '{}' with a batch of {}; give another number of ranks",
           options_.ranks, model_.name(), workload_.batch);
  }

  void offer(std::vector<Offer>& offers) {
    std::stable_sort(offers.begin(), offers.end(),
                     [](const Offer& a, const Offer& b) { return a.seconds < b.seconds; });
    for (const auto& [strategy, seconds] : offers) best_.offer(strategy, seconds);
  }

  /// Returns the candidate with a better estimate, once per choice of layouts. Returns nothing if it cannot run, or if
  /// it duplicates another candidate.
  std::vector<Candidate> refined(Candidate candidate, LayoutCosts& layout_costs) const {
    const Index samples = (per_microbatch(candidate.microbatches) + candidate.shares.data - 1) / candidate.shares.data;
    const CandidateLayoutCosts& costs = layout_costs.costs(candidate.shares, samples);
    if (costs.patterns.empty()) return {};
    if (candidate.known == Candidate::Known::ideal) {
      const auto [work, longest] = layout_costs.lower_bound(costs, candidate.microbatches);
      candidate.known = Candidate::Known::bound;
      candidate.seconds = candidate.pipelined(work, longest);
      return {candidate};
    }
    candidate.known = Candidate::Known::layouts;
    candidate.patterns = costs.patterns;
    // A choice has a pattern for every layer. Estimates differ so little that one pattern for all layers may be best.
    std::set<std::vector<int>> choices;
    for (std::size_t p = 0; p < costs.patterns.size(); ++p)
      choices.emplace(model_.layers().size(), static_cast<int>(p));
    const ChoiceGraph graph = layout_costs.graph(costs, candidate.microbatches, 0);
    choices.insert(eliminate_choices(graph).ways);
    for (const double exposed : exposed_shares)
      choices.insert(eliminate_choices(layout_costs.graph(costs, candidate.microbatches, exposed)).ways);
    std::vector<Candidate> all;
    for (const auto& ways : choices) {
      candidate.ways = ways;
      estimate(candidate, layout_costs, costs, graph);
      if (!could_be_data(candidate)) all.push_back(candidate);
    }
    return all;
  }

  /// Estimates the seconds of a step with the candidate's layouts. `graph` contains the gradient sums that nothing can
  /// hide; the others hide behind the backward pass of the last microbatch.
  static void estimate(Candidate& candidate, const LayoutCosts& layout_costs, const CandidateLayoutCosts& costs,
                       const ChoiceGraph& graph) {
    const auto& ways = candidate.ways;
    const auto each = costs_of(graph, ways);
    const double work = std::accumulate(each.begin(), each.end(), 0.0);
    const Segments parts = minimize_max_segment(each, candidate.stages);
    const auto crossings = layout_costs.crossings(costs, ways);
    std::vector<double> transfers;
    for (const std::size_t begin : parts.begins) transfers.push_back(crossings[begin]);
    candidate.seconds =
        candidate.pipelined(work, parts.longest, transfers) +
        layout_costs.exposed_comm(costs, ways, backward_share * work / candidate.microbatches) / candidate.stages;
    candidate.even = work / candidate.stages;
  }

  /// Returns true if an axis other than the data axis shards only samples. Then the grid with a longer data axis gives
  /// the same candidate.
  bool could_be_data(const Candidate& candidate) const {
    const Shares& shares = candidate.shares;
    const auto only_samples = [&](char axis) {
      return std::none_of(candidate.ways.begin(), candidate.ways.end(), [&](int way) {
        const std::string& pattern = candidate.patterns[static_cast<std::size_t>(way)];
        const auto rest = pattern.starts_with("N@") ? pattern.find(' ') : 0;
        return rest != std::string::npos && pattern.find(axis, rest) != std::string::npos;
      });
    };
    for (const auto& [axis, extent] : {std::pair('y', shares.y), {'x', shares.x}, {'c', shares.c}})
      if (extent > 1 && shares.data * extent <= per_microbatch(candidate.microbatches) && only_samples(axis))
        return true;
    return false;
  }

  /// Returns all combinations of stages, microbatches and grids, without layouts. Their time estimate counts only
  /// computation, shared evenly.
  std::vector<Candidate> outlines() const {
    const Computing computing(model_, workload_, machine_, times_);
    std::vector<Candidate> all;
    const auto layers = static_cast<int>(model_.layers().size());
    for (const int stages : divisors(options_.ranks)) {
      if (stages > layers || (stages > 1 && options_.kinds.empty())) continue;
      for (int times = 1; times <= options_.most_microbatches; times *= 2) {
        const int microbatches = stages == 1 ? times : times * stages;
        if (microbatches > workload_.batch) continue;
        const auto [work, longest] = computing.seconds(static_cast<double>(stages) / options_.ranks / microbatches);
        for (const Shares& shares : grids(options_.ranks / stages, per_microbatch(microbatches))) {
          Candidate outline{.stages = stages, .microbatches = microbatches, .shares = shares};
          outline.seconds = outline.pipelined(microbatches * work, microbatches * longest);
          all.push_back(std::move(outline));
        }
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

  /// Returns the pattern that most layers have.
  static int usual_way(const Candidate& candidate) {
    std::vector<int> count(candidate.patterns.size(), 0);
    for (const int way : candidate.ways) ++count[static_cast<std::size_t>(way)];
    return static_cast<int>(std::max_element(count.begin(), count.end()) - count.begin());
  }

  Strategy strategy_of(const Candidate& candidate) const {
    Strategy strategy(candidate.shares.grid());
    const int usual = usual_way(candidate);
    if (const auto& rule = candidate.patterns[static_cast<std::size_t>(usual)]; !rule.empty())
      strategy.layer("*", {.output = rule});
    const auto shapes = model_.shapes(1);
    for (std::size_t i = 0; i < candidate.ways.size(); ++i)
      if (candidate.ways[i] != usual && !model_.layers()[i].op->is_loss())
        strategy.layer(model_.layers()[i].name,
                       {.output = fitting(candidate.patterns[static_cast<std::size_t>(candidate.ways[i])], shapes[i])});
    return strategy;
  }

  /// Returns the entries of a pattern whose dimensions the shape has, because a rule that names a layer exactly must
  /// fit it.
  static std::string fitting(const std::string& pattern, const Shape& shape) {
    std::string text;
    std::istringstream words(pattern);
    for (std::string word; words >> word;)
      if (shape.has(word[0])) text += text.empty() ? word : fmt::format(" {}", word);
    return text;
  }

  /// Turns a candidate into offers, one per schedule. chimera takes longer to estimate. It is only noted in
  /// `two_replicas`, with the time that it takes if all stages work equally long and none waits.
  void examine(const Candidate& candidate, std::vector<Offer>& offers, std::vector<Offer>& two_replicas) {
    const Strategy layouts = strategy_of(candidate);
    if (candidate.stages == 1) {
      const Strategy whole =
          candidate.microbatches == 1 ? layouts : scheduled(layouts, ScheduleKind::one_f_one_b, candidate);
      offers.push_back({whole, price(best_.bind_plan(whole)).seconds});
      return;
    }
    const Strategy staged = Strategy(layouts).stages(candidate.stages);
    std::optional<Plan> uncut;  // the plan before stages are placed; the same for all kinds
    for (const ScheduleKind kind : options_.kinds) {
      const int groups = candidate.stages * default_groups_per_stage(kind);
      if (kind == chimera || groups > static_cast<int>(model_.layers().size())) continue;
      const Strategy strategy = scheduled(staged, kind, candidate);
      if (!uncut) uncut = bind_single_stage(model_, strategy, workload_);
      offers.push_back({strategy, price(*uncut, strategy).seconds});
    }
    if (candidate.stages % 2 == 0 && std::count(options_.kinds.begin(), options_.kinds.end(), chimera) > 0)
      two_replicas.push_back({scheduled(staged, chimera, candidate), candidate.even});
  }

  static Strategy scheduled(const Strategy& strategy, ScheduleKind kind, const Candidate& candidate) {
    return Strategy(strategy).schedule(kind, candidate.microbatches);
  }

  StepCost price(const Plan& plan) const { return CostFormula(plan, machine_, times_).step(machine_); }
  /// Estimates a strategy after placing its stages with little effort.
  StepCost price(const Plan& uncut, const Strategy& strategy) {
    return price(best_.bind_plan(best_.placed(uncut, strategy, MemoryLimitedSearch::quick)));
  }

  const Model& model_;
  Workload workload_;
  const Machine& machine_;
  const KernelTimes& times_;
  PlannerOptions options_;
  MemoryLimitedSearch best_;
  std::string spatial_;  // the dimensions that the axes y and x shard
  int most_y_ = 1, most_x_ = 1;
};

}  // namespace

std::vector<Planned> plan_strategies(const Model& model, const Workload& workload, const Machine& machine,
                                     const KernelTimes& times, const PlannerOptions& options) {
  if (options.ranks < 1 || options.ranks > most_ranks)
    fail("the number of ranks is {}; it must be 1 to {}", options.ranks, most_ranks);
  if (options.best < 1) fail("the number of strategies to find is {}; it must be 1 or more", options.best);
  if (options.examined < 1) fail("the number of candidates to examine is {}; it must be 1 or more", options.examined);
  for (const int each : {options.rounds, options.most_split, options.most_microbatches})
    if (each < 1)
      fail("a limit of the planner's rounds, ranks per block or microbatches is {}; it must be 1 or more", each);
  return Planner(model, workload, machine, times, options).run();
}

}  // namespace partita
