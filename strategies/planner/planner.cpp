#include "partita/strategies/planner/planner.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/schedule/generators.hpp"
#include "strategies/plan/stages.hpp"
#include "strategies/planner/layout_costs.hpp"
#include "strategies/planner/linear_partition.hpp"
#include "strategies/planner/memory_limited.hpp"

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

// What the search takes for granted; how much it looks at is in PlannerOptions.

/// The part of a microbatch that its backward takes, two passes of three that are about as long: gradients' sums hide behind that of
/// the last one. With a larger one grids with long sums would seem better than they are, and be examined in vain.
constexpr double backward_share = 2.0 / 3;
/// How much of the sums that computing could hide counts where layouts are chosen: from none (always tried) to all, as nobody knows
/// before all layouts are chosen. With more values there are more choices a grid, few of them new.
constexpr std::array exposed_shares{0.5, 1.0};
/// Space is not cut into more parts than this, whatever the image: what is larger is no grid of ranks.
constexpr Index most_parts = 1 << 14;
/// The kind whose stages hold two groups of layers.
constexpr ScheduleKind chimera = ScheduleKind::chimera;

/// Ascending.
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

/// One way to run the model, before it is bound whole; the better its seconds are known, the more is known of it.
struct Candidate {
  int stages = 1, microbatches = 1;
  Shares shares;
  double seconds = 0;  // at least
  enum class Known { ideal, bound, layouts } known = Known::ideal;
  std::vector<std::string> patterns{};
  std::vector<int> ways{};  // by layer, of these
  double even = 0;          // seconds that a stage works if all do as much

  /// Of a step of one microbatch after the other through all stages: the first passes them all (`work` in a step is that of all
  /// microbatches) and what is between them, there and back; the others follow at the pace of the longest stage and transfer.
  double pipelined(double work, double longest_stage, const std::vector<double>& transfers = {}) const {
    const double between = transfers.empty() ? 0 : *std::max_element(transfers.begin(), transfers.end());
    return work / microbatches + 2 * std::accumulate(transfers.begin(), transfers.end(), 0.0) +
           (microbatches - 1) * (std::max(longest_stage, work / stages) / microbatches + between);
  }
  bool operator<(const Candidate& other) const { return seconds > other.seconds; }  // the least is the first of a queue
};

/// What computing takes on a rank that has an even share of every layer: kernels of that share, each launched.
class Computing {
 public:
  Computing(const Model& model, const Workload& workload, const Machine& machine, const KernelTimes& times)
      : whole_(bind(model, Strategy(), workload)), formula_(whole_, machine, times), machine_(machine) {}

  /// Seconds of all layers, and of the longest one. A share of the work takes that share of the time that the whole takes on a
  /// machine whose kernels take longer to launch, and are as slow as the shares are, by as much.
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
  /// A candidate as a strategy, its stages not yet placed, and about the seconds of its step; not yet whether it fits.
  struct Offer {
    Strategy strategy;
    double seconds = 0;
  };

  /// Best first: what may be least is looked at more closely, until the least are known. Of most outlines nothing is priced.
  void search() {
    std::priority_queue<Candidate> queue;
    for (auto& outline : outlines()) queue.push(std::move(outline));
    LayoutCosts prices(model_, workload_, machine_, times_, spatial_);
    int examined = 0, rounds = 0;
    bool offered = false;                         // under some schedule
    std::set<std::tuple<int, int, double>> seen;  // equal seconds: the same under other names of axes
    for (; !queue.empty() && !best_.done(queue.top().seconds) && (rounds < options_.rounds || !offered); ++rounds) {
      std::vector<Offer> offers, two_replicas;
      for (int last = examined + options_.examined; !queue.empty() && examined < last;) {
        const Candidate candidate = queue.top();
        queue.pop();
        if (candidate.known != Candidate::Known::layouts) {
          for (auto& more : refined(candidate, prices)) queue.push(std::move(more));
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
    for (const auto& each : prices.left_out())
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

  /// What more is known of what it costs; none if it cannot run, or is another one too.
  std::vector<Candidate> refined(Candidate candidate, LayoutCosts& prices) const {
    const Index samples = (per_microbatch(candidate.microbatches) + candidate.shares.data - 1) / candidate.shares.data;
    const CandidateLayoutCosts& costs = prices.costs(candidate.shares, samples);
    if (costs.patterns.empty()) return {};
    if (candidate.known == Candidate::Known::ideal) {
      const auto [work, longest] = prices.bound(costs, candidate.microbatches);
      candidate.known = Candidate::Known::bound;
      candidate.seconds = candidate.pipelined(work, longest);
      return {candidate};
    }
    candidate.known = Candidate::Known::layouts;
    candidate.patterns = costs.patterns;
    std::set<std::vector<int>>
        choices;  // of layouts; prices are near enough to each other that one pattern for all may be best
    for (std::size_t p = 0; p < costs.patterns.size(); ++p)
      choices.emplace(model_.layers().size(), static_cast<int>(p));
    const ChoiceGraph graph = prices.graph(costs, candidate.microbatches, 0);
    choices.insert(eliminate_choices(graph).ways);
    for (const double exposed : exposed_shares)
      choices.insert(eliminate_choices(prices.graph(costs, candidate.microbatches, exposed)).ways);
    std::vector<Candidate> all;
    for (const auto& ways : choices) {
      candidate.ways = ways;
      estimate(candidate, prices, costs, graph);
      if (!could_be_data(candidate)) all.push_back(candidate);
    }
    return all;
  }

  /// Seconds of a step with these layouts; sums of gradients, of which the graph has what nothing hides, hide behind a last backward.
  static void estimate(Candidate& candidate, const LayoutCosts& prices, const CandidateLayoutCosts& costs,
                       const ChoiceGraph& graph) {
    const auto& ways = candidate.ways;
    const auto each = costs_of(graph, ways);
    const double work = std::accumulate(each.begin(), each.end(), 0.0);
    const Segments parts = minimize_max_segment(each, candidate.stages);
    const auto crossings = prices.crossings(costs, ways);
    std::vector<double> transfers;
    for (const std::size_t begin : parts.begins) transfers.push_back(crossings[begin]);
    candidate.seconds =
        candidate.pipelined(work, parts.longest, transfers) +
        prices.exposed_comm(costs, ways, backward_share * work / candidate.microbatches) / candidate.stages;
    candidate.even = work / candidate.stages;
  }

  /// True if another axis than the data axis cuts nothing but samples, so that the grid with a longer data axis is the same.
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

  /// Stages, microbatches and grids, without layouts, as fast as if they did nothing but compute and shared it evenly.
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

  /// The pattern that most layers have.
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

  /// A pattern's words of the dimensions that a shape has: a rule with a layer's name must fit it.
  static std::string fitting(const std::string& pattern, const Shape& shape) {
    std::string text;
    std::istringstream words(pattern);
    for (std::string word; words >> word;)
      if (shape.has(word[0])) text += text.empty() ? word : fmt::format(" {}", word);
    return text;
  }

  /// A candidate under each schedule. chimera takes longer to price: it is only noted, with what it takes if all stages work as long and
  /// none waits.
  void examine(const Candidate& candidate, std::vector<Offer>& offers, std::vector<Offer>& two_replicas) {
    const Strategy layouts = strategy_of(candidate);
    if (candidate.stages == 1) {
      const Strategy whole =
          candidate.microbatches == 1 ? layouts : scheduled(layouts, ScheduleKind::one_f_one_b, candidate);
      offers.push_back({whole, price(best_.bound(whole)).seconds});
      return;
    }
    const Strategy staged = Strategy(layouts).stages(candidate.stages);
    std::optional<Plan> uncut;  // the same for all kinds
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
  /// With stages that are placed quickly.
  StepCost price(const Plan& uncut, const Strategy& strategy) {
    return price(best_.bound(best_.placed(uncut, strategy, MemoryLimitedSearch::quick)));
  }

  const Model& model_;
  Workload workload_;
  const Machine& machine_;
  const KernelTimes& times_;
  PlannerOptions options_;
  MemoryLimitedSearch best_;
  std::string spatial_;  // the dimensions that y and x cut
  int most_y_ = 1, most_x_ = 1;
};

}  // namespace

std::vector<Planned> plan_strategies(const Model& model, const Workload& workload, const Machine& machine,
                                     const KernelTimes& times, const PlannerOptions& options) {
  if (options.ranks < 1 || options.ranks > most_ranks)
    fail("a strategy for {} ranks; there must be 1 to {}", options.ranks, most_ranks);
  if (options.best < 1) fail("the best {} strategies; ask for 1 or more", options.best);
  if (options.examined < 1) fail("{} candidates to examine; there must be 1 or more", options.examined);
  for (const int each : {options.rounds, options.most_split, options.most_microbatches})
    if (each < 1)
      fail("the planner's rounds, ranks of a block and microbatches are limited to {}; give 1 or more", each);
  return Planner(model, workload, machine, times, options).run();
}

}  // namespace partita
