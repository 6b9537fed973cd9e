#pragma once

#include "partita/strategies/machine/kernel_times.hpp"
#include "partita/strategies/machine/machine.hpp"
#include "partita/strategies/plan/plan.hpp"

#include <map>
#include <string>
#include <vector>

namespace partita {

/// Writes the execution traces of a training step for MLCommons Chakra ("Advancing Performance Benchmarking and
/// Co-design using Standardized Execution Traces", Sridharan et al. 2023), which ASTRA-sim and others read: what
/// walk_step() tells of each rank, as nodes of the schema et_def.proto.
class ChakraTraces {
 public:
  /// @pre The arguments outlive it.
  ChakraTraces(const Plan& plan, const Machine& machine, const KernelTimes& times)
      : plan_(plan), machine_(machine), times_(times) {}

  /// Returns the file of a rank: a GlobalMetadata and then Nodes, each after its length. Nodes of the ranks of one
  /// collective name the same group; a message has the same `comm_tag` on both of its ranks, and no other message
  /// between them has it.
  std::string trace(int rank);
  /// The groups of ranks that the traces so far name, by `pg_name`, which is a number from 1 on.
  const std::map<std::vector<int>, int>& groups() const { return groups_; }

 private:
  const Plan& plan_;
  const Machine& machine_;
  const KernelTimes& times_;
  std::map<std::vector<int>, int> groups_;
};

}  // namespace partita
