#include "src/train/trainer/plan_set.hpp"

#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "src/device/capture.hpp"

namespace partita {

PlanSet::PlanSet(const Shared& shared, Plan whole) : shared_(shared) {
  prepare(plans_[{shared_.options.batch, shared_.options.training, 0}], std::move(whole));
}

BoundPlan& PlanSet::of(Index batch, bool training, Index places, const Model& model) {
  auto& entry = plans_[{batch, training, places}];
  if (entry.executor) return entry;
  Plan plan = bind(places > 0 ? model.at_places(places) : model, shared_.strategy,
                   {batch, shared_.options.dtype, training, shared_.options.optimizer});
  shared_.ranks.add(plan);
  shared_.memory.hold_shared(shared_.ranks.shared_bytes());
  prepare(entry, std::move(plan));
  return entry;
}

void PlanSet::prepare(BoundPlan& entry, Plan plan) {
  const TrainerOptions& options = shared_.options;
  const StageRanks& ranks = shared_.ranks;
  const int rank = shared_.world.rank();
  entry.plan = std::move(plan);
  entry.predicted = rank_traffic(entry.plan, rank).counted;
  for (std::size_t i = 0; i < entry.plan.layers.size(); ++i)
    for (const auto& item : step_traffic(entry.plan, static_cast<int>(i), rank))
      if (item.purpose == Purpose::update) entry.of_update += item.traffic;
  entry.executor = std::make_unique<Executor>(
      RunContext{entry.plan, *ranks.grid, *ranks.gradient_grid, *ranks.between, *ranks.control,
                 ranks.replica_pair.get(), ranks.copy_pairs, shared_.backend, shared_.parameters, *ranks.counter,
                 shared_.allocator, options.seed, options.overlap, &shared_.guard, options.graphs && captures()});
  if (options.dtype == shared_.backend.chosen_dtype())
    choose_kernels(shared_.backend, shared_.allocator->stream(), entry.executor->problems(),
                   KernelCache(options.kernel_folder, shared_.backend, options.threads), shared_.world,
                   options.measuring, entry.plan.kernels, kernels_);
  if (!entry.plan.workload.training && entry.executor->target().labels)
    entry.executor->observe(
        [this, &executor = *entry.executor](int microbatch, const Tensor& scores, const Tensor& target) {
          count_classes(executor, microbatch, scores, target);
        });
}

/// True if the device can capture steps, with all messages in them.
bool PlanSet::captures() const { return shared_.allocator->device().capture() != nullptr && shared_.ranks.captures(); }

/// Counts the predictions of a microbatch. Of several ranks that hold the same positions, one counts.
void PlanSet::count_classes(const Executor& executor, int microbatch, const Tensor& scores, const Tensor& target) {
  if (counts_.classes() == 0) return;  // predict() runs the plan too, without targets
  const Layout& x = executor.plan().layers_of(microbatch).back()->at.x[0];
  const int rank = shared_.ranks.grid->rank();
  if (representative_rank(x.grid(), rank, x.replicated()) != rank) return;
  const Stream stream = shared_.allocator->stream();
  counts_.add(on_host(scores, stream), on_host(target, stream));
}

}  // namespace partita
