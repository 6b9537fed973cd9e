#pragma once

#include "partita/strategies/plan/plan.hpp"

#include <utility>
#include <vector>

namespace partita {

/// The layers of a plan that one stage runs or reads. It is computed once for all microbatches.
class StageLayers {
 public:
  StageLayers(const Plan& plan, int stage);

  /// Returns the layers [first, end) of a group of any stage.
  std::pair<std::size_t, std::size_t> of_group(int group) const { return groups_[group]; }
  /// Returns the index of a layer among those that the stage runs or reads; 0 for other layers.
  std::size_t number(std::size_t layer) const { return numbers_[layer]; }
  /// Returns the number of layers that the stage runs or reads.
  std::size_t count() const { return count_; }

  /// The stage's part of one replica.
  struct Replica {
    int first_group = 0;
    int microbatches = 0;                   ///< number of microbatches that the replica runs
    std::vector<std::vector<int>> readers;  ///< by layer: its readers on the stage
    std::vector<bool> needs_output;         ///< by layer: as Plan::needs_output
  };
  const Replica& replica(int number) const { return replicas_[number]; }

 private:
  std::vector<std::pair<std::size_t, std::size_t>> groups_;
  std::vector<Replica> replicas_;
  std::vector<std::size_t> numbers_;
  std::size_t count_ = 0;
};

}  // namespace partita
