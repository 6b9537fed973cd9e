#pragma once

#include "partita/strategies/schedule/simulate.hpp"

namespace partita {

/// The actions of a schedule in an order in which they can be simulated one after the other, and what each waits for.
/// Neither depends on durations, so that a search that simulates a schedule many times finds both once. A value.
class SimulationOrder {
 public:
  /// Throws as simulate() does.
  SimulationOrder(const Schedule& schedule, const GroupGraph& graph);

  /// Does what the functions of these names do.
  Simulation simulate(const ScheduleTimes& times) const;
  double makespan(const ScheduleTimes& times) const;

 private:
  class Builder;
  class Run;

  /// An action. Steps are in the order in which they are simulated.
  struct Step {
    Action action;
    int stage = 0, position = 0;
    int edge = -1;             // of a send: the edge over which it goes
    std::size_t end_wait = 0;  // in waits_: behind its last one; its first one is behind those of the step before
  };
  /// An earlier step that must have ended.
  struct Wait {
    int step = 0;
    int edge = -1;  // if what it made comes from another stage: the edge over which it comes
  };

  std::vector<Step> steps_;
  std::vector<Wait> waits_;
  std::vector<std::size_t> lengths_;  // by stage: the number of its actions
};

}  // namespace partita
