#pragma once

#include "partita/strategies/plan/bind.hpp"
#include "strategies/plan/schedule_cache.hpp"

namespace partita {

/// As bind(), among others that ask for the same schedules.
Plan bind(const Model& model, const Strategy& strategy, const Workload& workload, ScheduleCache& made);

/// The layers of a model for a batch that runs as one: no schedule, no buckets, and nothing asked of the model as a whole.
Plan bind_layers(const Model& model, const Strategy& strategy, const Workload& workload);

}  // namespace partita
