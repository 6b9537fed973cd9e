#include "strategies/planner/candidate.hpp"

#include "partita/strategies/cost/cost_formula.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "strategies/plan/bind.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace partita {

namespace {

/// Spatial dimensions are not split into more parts than this, whatever the image: no grid of ranks has a longer axis.
constexpr Index most_parts = 1 << 14;

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

/// Returns the pattern that most layers have.
std::ptrdiff_t usual_pattern(const Candidate& candidate) {
  std::vector<int> count(candidate.patterns.size(), 0);
  for (const int pattern : candidate.pattern_of_layer) ++count[pattern];
  return std::max_element(count.begin(), count.end()) - count.begin();
}

/// Estimates computation on a rank that has an even share of every layer: smaller kernels, each launched separately.
class Computing {
 public:
  explicit Computing(const SearchContext& context)
      : whole_(bind(context.model, Strategy(), context.workload)),
        formula_(whole_, context.machine, context.times),
        machine_(context.machine) {}

  /// Returns the seconds of all layers, and of the longest layer, for a share of the work. This is `share` times the
  /// time of the whole model on a modified machine: its kernels take 1/share times as long to launch, and are as
  /// inefficient as kernels of the smaller size.
  std::pair<double, double> seconds(double share) const {
    Machine machine = machine_;
    machine.kernel.value /= share;
    for (auto& [kind, efficiency] : machine.efficiency) {
      for (auto& point : efficiency.curve.points) point.first /= share;
      for (auto& [type, curve] : efficiency.of_type)
        for (auto& point : curve.points) point.first /= share;
    }
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

/// Returns 1, 2, 4, ... microbatches: first fewer than stages, as a step with few samples may need, then per stage.
std::vector<int> numbers_of_microbatches(int stages, int most_per_stage) {
  std::vector<int> all;
  for (int fewer = 1; fewer < stages; fewer *= 2) all.push_back(fewer);
  for (int times = 1; times <= most_per_stage; times *= 2) all.push_back(times * stages);
  return all;
}

/// Returns how to cut space into `parts`, as ranks along y and x <= y: the one with the longest y, which has the
/// fewest neighbors, and the squarest one, whose halos are smallest. Those in between have as many neighbors as the
/// squarest one, and larger halos.
std::vector<std::pair<int, int>> spatial_cuts(int parts, int most_y, int most_x) {
  std::vector<std::pair<int, int>> all;
  for (const int x : divisors(parts))
    if (const int y = parts / x; x <= y && y <= most_y && x <= most_x) all.emplace_back(y, x);
  if (all.size() > 2) all.erase(all.begin() + 1, all.end() - 1);
  return all;
}

/// Returns the grids of `ranks` ranks on which each rank has some of the samples and pixels.
std::vector<Shares> grids(int ranks, Index samples, int most_y, int most_x, int most_split) {
  std::vector<Shares> all;
  for (const int data : divisors(ranks)) {
    const int split = ranks / data;
    if (data > samples || split > most_split) continue;
    for (const int space : divisors(split))
      for (const auto& [y, x] : spatial_cuts(space, most_y, most_x)) all.push_back({data, y, x, split / space});
  }
  return all;
}

}  // namespace

bool Candidate::typical() const {
  const auto square_root = [](int n) {  // the largest divisor that is not larger
    int root = 1;
    for (const int d : divisors(n))
      if (d <= n / d) root = d;
    return root;
  };
  const auto& [data, y, x, c] = shares;
  return y * x == 1 || c == 1 || (c == square_root(shares.split()) && x == square_root(y * x));
}

double Candidate::pipelined(double work, double longest_stage, const std::vector<double>& transfers) const {
  const double between = transfers.empty() ? 0 : *std::max_element(transfers.begin(), transfers.end());
  return work / microbatches + 2 * std::accumulate(transfers.begin(), transfers.end(), 0.0) +
         (microbatches - 1) * (std::max(longest_stage, work / stages) / microbatches + between);
}

double Candidate::passed_both_ways(double work) const {
  constexpr double share = 2.0 / 3;
  const double stage = work / stages;
  return stage + (stages / 2 - 1) * share * stage / microbatches;
}

bool Candidate::could_be_data(Index samples) const {
  const auto only_samples = [&](std::string_view axis) {
    return std::none_of(pattern_of_layer.begin(), pattern_of_layer.end(),
                        [&](int pattern) { return patterns[pattern].splits_samples(axis); });
  };
  for (const auto& [axis, extent] : shares.splitting())
    if (extent > 1 && shares.data * extent <= samples && only_samples(axis)) return true;
  return false;
}

Strategy Candidate::strategy(const Model& model) const {
  Strategy strategy(shares.grid());
  const auto usual = static_cast<int>(usual_pattern(*this));
  const auto pattern = [&](int way) -> const LayoutPattern& { return patterns[way]; };
  if (const std::string rule = pattern(usual).rule(); !rule.empty()) strategy.layer("*", {.output = rule});
  const auto shapes = model.shapes(1);
  for (std::size_t i = 0; i < pattern_of_layer.size(); ++i) {
    const auto other = instead.find({i, pattern_of_layer[i]});
    if (pattern_of_layer[i] == usual && other == instead.end()) continue;
    const LayoutPattern& mine = other == instead.end() ? pattern(pattern_of_layer[i]) : other->second;
    strategy.layer(model.layers()[i].name, {.output = mine.of(shapes[i]).rule()});
  }
  return strategy;
}

StrategyKind Candidate::kind(const Model& model) const {
  StrategyKind kind = kind_of(model, strategy(model));
  kind.stages = stages > 1;
  return kind;
}

int most_microbatches(const Model& model, const PlannerOptions& options) {
  const auto by_microbatch = [](const Layer& layer) { return layer.op->depends_on_microbatches(); };
  const bool one = options.keep_batch_norm && std::any_of(model.layers().begin(), model.layers().end(), by_microbatch);
  return one ? 1 : std::numeric_limits<int>::max();
}

std::vector<Candidate> all_outlines(const SearchContext& context, const PlannerOptions& options,
                                    const std::string& spatial, const std::function<double(int)>& collectives) {
  const Computing computing(context);
  const Shape input = context.model.shapes(1)[0];
  const auto most = [&](std::size_t dim) {
    return dim < spatial.size() ? static_cast<int>(std::min<Index>(input[spatial[dim]], most_parts)) : 1;
  };
  std::vector<Candidate> all;
  const auto layers = static_cast<int>(context.model.layers().size());
  for (const int stages : divisors(options.ranks)) {
    if (stages > layers || stages < options.least_stages || (stages > 1 && options.kinds.empty())) continue;
    for (const int microbatches : numbers_of_microbatches(stages, options.most_microbatches)) {
      if (microbatches > most_microbatches(context.model, options) || microbatches > context.workload.batch) continue;
      const auto [work, longest] = computing.seconds(static_cast<double>(stages) / options.ranks / microbatches);
      const Index samples = microbatch_of(context.workload, microbatches).batch;
      for (const Shares& shares : grids(options.ranks / stages, samples, most(0), most(1), options.most_split)) {
        Candidate outline{.stages = stages, .microbatches = microbatches, .shares = shares};
        outline.seconds = outline.pipelined(microbatches * (work + collectives(shares.data)), microbatches * longest);
        all.push_back(std::move(outline));
      }
    }
  }
  return all;
}

}  // namespace partita
