#pragma once

#include "partita/base/error.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "strategies/plan/schedule_cache.hpp"

namespace partita {

/// Returns the number of microbatches of a step: as many as the strategy says, but at most one per sample.
int microbatches_of(const Strategy& strategy, const Workload& workload);
/// Returns the workload of the largest of a step's microbatches.
Workload microbatch_of(Workload step, int microbatches);

/// Does what bind() does, and takes schedules from `made`, which calls share.
Plan bind(const Model& model, const Strategy& strategy, const Workload& workload, ScheduleCache& made);

/// Thrown if a layer cannot run in the layouts that a strategy asks for.
class LayerRefused : public Error {
 public:
  LayerRefused(const std::string& what, int number) : Error(what), layer(number) {}
  int layer;  ///< its number in the model
};

/// Binds only the layers of a model, for a batch that is one microbatch: without a schedule, without buckets, and
/// without checks of the model as a whole. Throws LayerRefused for the first layer that cannot run.
Plan bind_layers(const Model& model, const Strategy& strategy, const Workload& workload);

}  // namespace partita
