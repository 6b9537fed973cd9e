#pragma once

#include "partita/strategies/cost/estimate.hpp"
#include "partita/strategies/plan/leaving_bytes.hpp"
#include "src/cli/files/json.hpp"

#include <optional>
#include <string>
#include <vector>

namespace partita::cli {

/// What `explain` says of a plan beside the plan itself.
struct Explained {
  const Plan& plan;
  int rank = 0;  ///< of the world: messages, bytes and memory are those of this rank
  std::vector<std::string> notes;
  std::string machine;                    ///< name of the machine
  std::vector<LeavingBytes> leaves_node;  ///< by the node of the rank; empty if nothing leaves it
  std::optional<Cost> cost;               ///< of a training step
};

/// Returns it as JSON, by docs/json.md.
Json to_json(const Explained& explained);

}  // namespace partita::cli
