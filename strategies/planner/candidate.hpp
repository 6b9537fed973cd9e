#pragma once

#include "partita/strategies/planner/planner.hpp"
#include "strategies/planner/layout_pattern.hpp"
#include "strategies/planner/search_context.hpp"
#include "strategies/planner/strategy_kind.hpp"

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace partita {

/// One way to run the model, before it is bound. `known` says how good its time estimate is.
struct Candidate {
  /// even_shares: even shares of computation; lower_bound: a lower bound from layer costs; layouts: an estimate for
  /// chosen layouts
  enum class Known { even_shares, lower_bound, layouts };

  int stages = 1, microbatches = 1;
  Shares shares;
  double seconds = 0;  ///< estimated seconds of a step: at first a lower bound
  Known known = Known::even_shares;
  std::vector<LayoutPattern> patterns{};
  std::vector<int> pattern_of_layer{};  ///< by layer: index into `patterns`
  /// by layer and pattern: the layout of a layer that cannot run in the pattern
  std::map<std::pair<std::size_t, int>, LayoutPattern> instead{};
  double both_ways = 0;  ///< estimated seconds of a step if microbatches pass through the stages both ways (Chimera)

  /// True if the ranks that share samples split space alone, channels alone, or both about equally.
  bool typical() const;
  /// Seconds of a step in which microbatches pass through all stages one after the other. The first microbatch passes
  /// through all stages, and the transfers between them forward and backward. The other microbatches follow at the pace
  /// of the longest stage and the longest transfer. `work` and `longest_stage` are the seconds of all microbatches in a
  /// step.
  double pipelined(double work, double longest_stage, const std::vector<double>& transfers = {}) const;
  /// Seconds of a step in which half of the microbatches pass through all stages the other way. All stages work equally
  /// long, and nothing waits for transfers or sums. The stages in the middle wait until a microbatch has passed through
  /// half of the stages, and at the end others wait for them; weights' gradients, a third of the work, fill that time.
  double passed_both_ways(double work) const;
  /// Returns true if an axis other than the data axis shards only samples. Then the grid with a longer data axis gives
  /// the same candidate. `samples` is the size of a microbatch.
  bool could_be_data(Index samples) const;
  /// Returns the layouts as a strategy: one rule for the pattern of most layers, and one for each other layer.
  Strategy strategy(const Model& model) const;
  /// Returns the kind of that strategy, on the candidate's stages.
  StrategyKind kind(const Model& model) const;

  /// A priority queue then begins with the shortest.
  bool operator<(const Candidate& other) const { return seconds > other.seconds; }
};

/// Returns the largest number of microbatches with which strategies compute what `options` ask for.
int most_microbatches(const Model& model, const PlannerOptions& options);

/// Returns all combinations of stages, microbatches and grids, without layouts. Their time estimate counts computation,
/// shared evenly, and `collectives(data)`: the seconds that a microbatch at least needs for collectives inside layers
/// if so many ranks share its samples. `spatial` names the dimensions that the axes y and x shard.
std::vector<Candidate> all_outlines(const SearchContext& context, const PlannerOptions& options,
                                    const std::string& spatial, const std::function<double(int)>& collectives);

}  // namespace partita
