#include "strategies/planner/candidate.hpp"
#include "partita/strategies/cost/cost_formula.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "strategies/plan/bind.hpp"

#include <algorithm>
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
std::ptrdiff_t usual_way(const Candidate& candidate) {
  std::vector<int> count(candidate.patterns.size(), 0);
  for (const int way : candidate.ways) ++count[static_cast<std::size_t>(way)];
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

/// Returns the grids of `ranks` ranks on which each rank has some of the samples and pixels.
std::vector<Shares> grids(int ranks, Index samples, int most_y, int most_x, int most_split) {
  std::vector<Shares> all;
  for (const int data : divisors(ranks))
    for (const int y : divisors(ranks / data))
      for (const int x : divisors(ranks / data / y)) {
        const Shares shares{data, y, x, ranks / data / y / x};
        if (data <= samples && y <= most_y && x <= most_x && x <= y && shares.split() <= most_split)
          all.push_back(shares);
      }
  return all;
}

}  // namespace

double Candidate::pipelined(double work, double longest_stage, const std::vector<double>& transfers) const {
  const double between = transfers.empty() ? 0 : *std::max_element(transfers.begin(), transfers.end());
  return work / microbatches + 2 * std::accumulate(transfers.begin(), transfers.end(), 0.0) +
         (microbatches - 1) * (std::max(longest_stage, work / stages) / microbatches + between);
}

bool Candidate::could_be_data(Index samples) const {
  const auto only_samples = [&](std::string_view axis) {
    return std::none_of(ways.begin(), ways.end(),
                        [&](int way) { return patterns[static_cast<std::size_t>(way)].splits_samples(axis); });
  };
  for (const auto& [axis, extent] : shares.splitting())
    if (extent > 1 && shares.data * extent <= samples && only_samples(axis)) return true;
  return false;
}

Strategy Candidate::strategy(const Model& model) const {
  Strategy strategy(shares.grid());
  const auto usual = static_cast<int>(usual_way(*this));
  const auto pattern = [&](int way) -> const LayoutPattern& { return patterns[static_cast<std::size_t>(way)]; };
  if (const std::string rule = pattern(usual).rule(); !rule.empty()) strategy.layer("*", {.output = rule});
  const auto shapes = model.shapes(1);
  for (std::size_t i = 0; i < ways.size(); ++i)
    if (ways[i] != usual) strategy.layer(model.layers()[i].name, {.output = pattern(ways[i]).of(shapes[i]).rule()});
  return strategy;
}

StrategyKind Candidate::kind(const Model& model) const {
  StrategyKind kind = kind_of(model, strategy(model));
  kind.stages = stages > 1;
  return kind;
}

std::vector<Candidate> all_outlines(const SearchContext& context, const PlannerOptions& options,
                                    const std::string& spatial) {
  const Computing computing(context);
  const Shape input = context.model.shapes(1)[0];
  const auto most = [&](std::size_t dim) {
    return dim < spatial.size() ? static_cast<int>(std::min<Index>(input[spatial[dim]], most_parts)) : 1;
  };
  std::vector<Candidate> all;
  const auto layers = static_cast<int>(context.model.layers().size());
  for (const int stages : divisors(options.ranks)) {
    if (stages > layers || (stages > 1 && options.kinds.empty())) continue;
    for (int times = 1; times <= options.most_microbatches; times *= 2) {
      const int microbatches = stages == 1 ? times : times * stages;
      if (microbatches > context.workload.batch) continue;
      const auto [work, longest] = computing.seconds(static_cast<double>(stages) / options.ranks / microbatches);
      const Index samples = microbatch_of(context.workload, microbatches).batch;
      for (const Shares& shares : grids(options.ranks / stages, samples, most(0), most(1), options.most_split)) {
        Candidate outline{.stages = stages, .microbatches = microbatches, .shares = shares};
        outline.seconds = outline.pipelined(microbatches * work, microbatches * longest);
        all.push_back(std::move(outline));
      }
    }
  }
  return all;
}

}  // namespace partita
