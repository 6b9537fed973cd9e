#pragma once

#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/collective_spans.hpp"
#include "strategies/cost/cost_terms.hpp"
#include "strategies/cost/kernel_terms.hpp"
#include "strategies/cost/unit_traffic.hpp"

#include <map>
#include <optional>
#include <span>

namespace partita {

/// The ranks of a grid whose work is examined. The slowest of them counts, so that fewer of them give a lower bound.
enum class Examined { representatives, first_and_inner };

/// Returns the list to which the messages of an operation that runs once per step count.
std::vector<Movement> GradReduceTerms::*list_of(const StepOp& op);

/// Builds the cost terms of the pieces of a plan, from the operations that the executor runs (layer_ops.hpp): one that
/// computes gives work of a kernel, and its messages (OpTraffic) give movements. Of the machine it reads only how many
/// ranks a unit of each level holds.
class CostTermBuilder {
 public:
  /// `split`: the schedule splits the backward pass into two halves. `whole`: the plan's only grid stands for this
  /// larger grid, which has the same axes with a longer first one. The collectives then run over the ranks of `whole`,
  /// and only the first rank and an inner rank are examined.
  /// @pre All arguments outlive the builder.
  CostTermBuilder(const Plan& plan, const Machine& machine, const KernelTimes& times, bool split,
                  const Grid* whole = nullptr, Examined examined = Examined::representatives);

  const CostTerms& terms() const { return terms_; }
  CostTerms take() && { return std::move(terms_); }

  /// Returns the terms of one microbatch of a replica, of the larger size or of the remainder, on the representatives
  /// of the layer's grid. Leaves out ranks that can never take longer than another.
  std::vector<RankTerms> layer(int layer, bool of_remainder, int replica = 0);
  /// Returns the terms of one microbatch of the larger size on a rank of the layer's grid.
  RankTerms layer_on(int layer, int rank);
  /// Returns the gradient sums of a layer on each examined rank; empty if the layer completes nothing.
  std::vector<GradReduceTerms> sums(int layer);
  /// Returns the terms of the weight update of a group.
  UpdateTerms update(int group) const;
  /// Returns one transfer of a layer between stages, of an operation send_output or send_gradient: one entry per
  /// representative that sends or receives.
  std::vector<Movement> transfer(const StepOp& sent, int replica);
  /// Returns such a transfer, of an output or back of its gradient, as one rank of the layer's grid sees it.
  Movement transfer_on(const PlannedTraffic& item, const Grid& grid, int rank);
  /// Returns the terms of one item of traffic of a rank of the grid.
  Movement movement(const PlannedTraffic& item, const Grid& grid, int rank);
  KernelTerm kernel(int layer, int rank) const;

 private:
  Movement movement(const PlannedTraffic& item, const Grid& grid, int rank, const BytesOfUnit& of_unit);
  Movement exchange(const PlannedTraffic& item, int world_rank, const BytesOfUnit& of_unit);
  Movement collective(const PlannedTraffic& item, const Grid& grid, int rank);
  int number(const Route& route);
  /// All that the options of a collective depend on.
  struct Collective {
    Verb verb;
    double bytes;
    std::vector<Span> spans;      // where each unit holds equally many of its ranks
    CountedCollectives* counted;  // else null
    int first;                    // its first rank, where they are counted
    auto operator<=>(const Collective&) const = default;
  };
  /// The messages of one rank for one microbatch of a layer.
  struct LayerWork {
    std::vector<PlannedTraffic> items;
    std::vector<std::optional<Computation>> hidden_by;  // by item: as LayerMovement::hidden_by
  };
  void add_traffic(LayerWork& work, const LayerPlan& layer, int index, int replica, int rank);
  class WorkOfRanks;
  class TransferOfRanks;
  RankTerms on_rank(WorkOfRanks& works, const LayerWork& work, int rank);
  const std::vector<int>& ranks(int stage, AxisSet every);
  std::optional<AxisSet> even_sums(int layer);
  /// Returns true if all routes to other ranks are alike.
  bool is_flat() const { return machine_.levels.size() == 1 && machine_.levels.front().pairs.empty(); }

  const Plan& plan_;
  const Machine& machine_;
  std::span<const Action::Kind> actions_;  // of a microbatch
  const Grid* whole_;
  Examined examined_;
  CollectiveSpans spans_;
  KernelTerms kernels_;
  CostTerms terms_;
  std::map<std::pair<int, AxisSet>, std::vector<int>> ranks_;  // by stage and irregular axes: the examined ranks
  std::map<Collective, std::pair<int, int>> options_;          // where the options of each collective stand
};

}  // namespace partita
