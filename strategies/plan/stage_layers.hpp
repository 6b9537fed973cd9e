#pragma once

#include "partita/strategies/plan/plan.hpp"

#include <utility>
#include <vector>

namespace partita {

/// Which of a plan's layers one stage runs or reads, found out once for all microbatches.
class StageLayers {
 public:
  StageLayers(const Plan& plan, int stage);

  /// The layers of a group, of whatever stage: the first, and behind the last.
  std::pair<std::size_t, std::size_t> of_group(int group) const { return groups_[static_cast<std::size_t>(group)]; }
  /// The number of a layer among those that the stage runs or reads; 0 for others.
  std::size_t number(std::size_t layer) const { return numbers_[layer]; }
  /// How many these are.
  std::size_t count() const { return count_; }

  /// What the stage has of one replica.
  struct Replica {
    int first_group = 0;
    int microbatches = 0;                   ///< that go through it
    std::vector<std::vector<int>> readers;  ///< on the stage, by layer
    std::vector<bool> needs_output;         ///< by layer, as Plan has it
  };
  const Replica& replica(int number) const { return replicas_[static_cast<std::size_t>(number)]; }

 private:
  std::vector<std::pair<std::size_t, std::size_t>> groups_;
  std::vector<Replica> replicas_;
  std::vector<std::size_t> numbers_;
  std::size_t count_ = 0;
};

}  // namespace partita
