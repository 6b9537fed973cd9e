#pragma once

#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/cost_terms.hpp"

#include <optional>

namespace partita {

/// True if some backward comes in two halves.
bool splits_backward(const Schedule& schedule);

/// Of a unit's links (a node's, at the level between nodes), when so many of its ranks use them at once.
double sharing(const Machine& machine, int level, double concurrent);

/// The way of an exchange of a rank of the world with ranks at most so far below and above it.
Route exchange_route(const Machine& machine, int rank, int below, int above);

/// Makes terms of the pieces of a plan. Of a machine it reads how many ranks a unit of each level holds, and nothing else.
class CostTermBuilder {
 public:
  /// `split`: backwards come in two halves. With `whole` the plan's only grid stands for that one, which has the same axes, the
  /// first one longer: collectives are among its ranks, and only a first and an inner rank are looked at. All that is given must
  /// outlive it.
  CostTermBuilder(const Plan& plan, const Machine& machine, const KernelTimes& times, bool split,
                  const Grid* whole = nullptr);

  const CostTerms& terms() const { return terms_; }
  CostTerms take() && { return std::move(terms_); }

  /// One microbatch of the larger size, or of the smaller one: on the representatives of its grid, less those that cannot
  /// take longer than another.
  std::vector<RankTerms> layer(int layer, bool of_remainder);
  /// None where the layer completes nothing.
  std::vector<GradReduceTerms> sums(int layer);
  /// Of the weights of a group.
  UpdateTerms update(int group) const;
  /// Of what a layer leaves for another stage: one a representative.
  std::vector<Movement> transfer(const StageBoundary& boundary);
  /// Of an item of traffic of a rank of the grid.
  Movement movement(const PlannedTraffic& item, const Grid& grid, int rank);
  KernelTerm kernel(const LayerPlan& layer, int rank) const;

 private:
  /// The ranks of the world that a collective is over: how many, the first and the last, and how many from one up to another.
  struct Group {
    int first = 0, last = 0, ranks = 1, inside = 1;
  };
  Group group(const PlannedTraffic& item, const Grid& grid, int rank, int level) const;
  Route route(const PlannedTraffic& item, const Grid& grid, int rank) const;
  Movement movement(const Route& route, const Traffic& traffic);
  int number(const Route& route);
  KernelTerm kernel(const LayerPlan& layer, int rank, std::optional<double>& whole) const;
  std::optional<LayerTimes> measured(const std::string& work, int group) const;
  double flops(const LayerPlan& layer, const Box& y, int rank, std::optional<double>& whole) const;
  RankTerms on_rank(const LayerPlan& layer, const KernelTerm& kernel, const std::vector<PlannedTraffic>& items,
                    const Grid& grid, int rank);
  const std::vector<int>& ranks(int stage);
  std::optional<AxisSet> even_sums(int layer);

  const Plan& plan_;
  const Machine& machine_;
  const KernelTimes& times_;
  bool split_;
  const Grid* whole_;
  std::vector<Loop> loops_;      // in which a stage's layers are timed; none without times
  std::vector<bool> completes_;  // by layer: a bucket; once sums are asked for
  CostTerms terms_;
  std::vector<std::vector<int>> ranks_;  // that are looked at, by stage
};

}  // namespace partita
