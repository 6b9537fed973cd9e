#pragma once

#include "partita/strategies/cost_model.hpp"

namespace partita {

/// True if some backward comes in two halves.
bool splits_backward(const Schedule& schedule);

/// Which way a message or a collective takes.
struct Route {
  int level = 0;
  int ranks = 1;         ///< that take part
  double bandwidth = 0;  ///< of one of them, where others use the links too
};

/// What a rank computes of a layer's forward; each half of its backward is taken to be as much.
struct LocalWork {
  double flops = 0, bytes = 0;
  double share = 1;  ///< of the machine's arithmetic that kernels of this size reach
};

/// What summing a layer's buckets takes.
struct Sums {
  double seconds = 0;   ///< of gradients, from when backward completes them
  double overlap = 0;   ///< the share of these that goes on while a rank computes
  double replicas = 0;  ///< of gradients and running statistics of both replicas, then
  double after = 0;     ///< of norms, and of weights that are gathered
  double total() const { return seconds + replicas + after; }
};

/// What a microbatch's transfer to another stage takes.
struct StageTransfer {
  double seconds = 0;  ///< from its first byte sent to its last received
  double overlap = 0;
};

/// Prices the pieces of a plan.
class Price {
 public:
  /// `split`: backwards come in two halves. With `widened` the first axis of the grid stands for one so many times as long, and
  /// only a first and an inner rank are looked at.
  Price(const Plan& plan, const Machine& machine, const KernelTimes& times, bool split, int widened = 0)
      : plan_(plan), machine_(machine), times_(times), split_(split), widened_(widened) {}

  int widened() const { return widened_; }
  /// One microbatch of the larger size, or of the smaller one.
  LayerCost layer(int layer, bool of_smaller) const;
  Sums sums(int layer) const;
  /// Of the weights of a group.
  double update(int group) const;
  /// Of what a layer leaves for another stage.
  StageTransfer transfer(const Boundary& boundary) const;

  Route route(const PlannedTraffic& item, const Grid& grid, int rank) const;
  /// Of an item of traffic, hidden or not, on a rank of the grid.
  double seconds(const PlannedTraffic& item, const Grid& grid, int rank) const;
  LocalWork local(const LayerPlan& layer, int rank) const;
  const Workload& workload() const { return plan_.workload; }

 private:
  struct Work {
    LayerTimes times;
    bool measured = false;
  };
  Work work(const LayerPlan& layer, int rank) const;
  LayerCost on_rank(int layer, int rank, bool of_smaller) const;
  /// Of an exchange of a rank of the world with ranks at most so far below and above it.
  Route route(int rank, int below, int above) const;
  double exchange(const Traffic& traffic, const Route& route) const;
  double overlap(const Route& route) const { return level(route.level).overlap.value; }
  /// The ranks of the world, ascending, that a rank's collective is over.
  std::vector<int> partners(const PlannedTraffic& item, const Grid& grid, int rank) const;
  double rings(const std::vector<int>& group, const Grid& grid, int rank, int number) const;
  std::vector<int> ranks(const Grid& grid) const;
  const Level& level(int number) const { return machine_.levels[static_cast<std::size_t>(number)]; }
  double bandwidth(int level, double concurrent) const;

  const Plan& plan_;
  const Machine& machine_;
  const KernelTimes& times_;
  bool split_;
  int widened_;
};

}  // namespace partita
