#pragma once

#include "partita/strategies/plan/bind.hpp"
#include "strategies/plan/schedule_cache.hpp"

namespace partita {

/// Does what bind() does, and takes schedules from `made`, which calls share.
Plan bind(const Model& model, const Strategy& strategy, const Workload& workload, ScheduleCache& made);

/// Binds only the layers of a model, for a batch that is one microbatch: without a schedule, without buckets, and
/// without checks of the model as a whole.
Plan bind_layers(const Model& model, const Strategy& strategy, const Workload& workload);

}  // namespace partita
