#pragma once

#include "strategies/planner/candidate.hpp"
#include "strategies/planner/layout_costs.hpp"
#include "strategies/planner/memory_limited.hpp"

#include <map>
#include <queue>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace partita {

/// Best-first search over stages, microbatches, grids, layouts and schedules: refines the candidate with the shortest
/// estimate until the fastest strategies are known. Most outlines are never refined.
class GridSearch {
 public:
  GridSearch(const SearchContext& context, const PlannerOptions& options);

  /// Returns the fastest strategies. Throws as plan_strategies() does.
  std::vector<Planned> run();
  /// Returns the strategies that others displaced (MemoryLimitedSearch::displaced).
  const std::vector<Planned>& displaced() const { return best_.displaced(); }
  /// Returns what the search left out because its time was up.
  const Unfinished& unfinished() const { return unfinished_; }

 private:
  /// The candidates of one round as strategies to evaluate. Strategies with two replicas take longer to estimate, so
  /// they are only noted, with the time that they take if all stages work equally long.
  struct Offers {
    std::vector<UnplacedStrategy> now, two_replicas;
    bool empty() const { return now.empty() && two_replicas.empty(); }
  };

  void search();
  void offer(std::vector<UnplacedStrategy> offers);
  void offer(Offers offers);
  [[noreturn]] void fail_unexamined(int examined) const;
  Index samples_per_rank(const Candidate& candidate) const;
  std::vector<Candidate> refined(Candidate candidate);
  void estimate(Candidate& candidate, const CandidateLayoutCosts& costs, const ChoiceGraph& graph) const;
  void note_both_ways(const Candidate& candidate);
  void offer_both_ways();
  void examine(const Candidate& candidate, Offers& offers);
  /// A strategy whose stages are placed, with its price.
  struct Priced {
    Strategy strategy;
    StepCost step;
  };

  void note_channels(const Candidate& candidate);
  void note_channels(std::priority_queue<Candidate> left);
  void examine_channels();
  void note_products(const Strategy& placed, const StepCost& step);
  void offer_products();
  void add_offer(std::vector<UnplacedStrategy>& offers, Strategy strategy, Strategy placed, int data);
  Strategy placed(const Plan& single_stage, const Strategy& strategy);

  const SearchContext& context_;
  const PlannerOptions& options_;
  MemoryLimitedSearch best_;
  std::string spatial_;  // the dimensions that the axes y and x shard
  LayoutCosts layout_costs_;
  Unfinished unfinished_;
  std::vector<Candidate> both_ways_;                      // by Candidate::both_ways
  std::map<std::pair<int, Shares>, Candidate> channels_;  // by stages and grid: the fastest that may cut channels
  std::map<std::tuple<std::size_t, int, std::string>, Priced> with_channels_;  // the same of strategies
};

}  // namespace partita
