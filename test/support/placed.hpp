#pragma once

#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/planner/stage_partition.hpp"

namespace partita::test {

/// The strategy with its open stage boundaries closed for the default machine; unchanged if it has none.
inline Strategy placed(const Model& model, const Strategy& strategy, const Workload& workload) {
  return place_stages(model, strategy, workload, default_machine(), {});
}

/// Binds a strategy whose stage boundaries may be open.
inline Plan bind_placed(const Model& model, const Strategy& strategy, const Workload& workload) {
  return bind(model, placed(model, strategy, workload), workload);
}

}  // namespace partita::test
