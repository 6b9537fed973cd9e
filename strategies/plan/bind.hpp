#pragma once

#include "partita/base/error.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "strategies/plan/known_layouts.hpp"
#include "strategies/plan/schedule_cache.hpp"

namespace partita {

/// Returns the number of microbatches of a step: as many as the strategy says, but at most one per sample.
int microbatches_of(const Strategy& strategy, const Workload& workload);
/// Returns the workload of the largest of a step's microbatches.
Workload microbatch_of(Workload step, int microbatches);

/// What calls of bind() for one model share.
struct BindCache {
  ScheduleCache schedules;
  KnownLayouts layouts;
};
/// Does what bind() does, with what other calls have made.
Plan bind(const Model& model, const Strategy& strategy, const Workload& workload, BindCache& cache);

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
