#include "partita/train/measure/timed_steps.hpp"
#include "partita/strategies/plan/memory.hpp"

#include "partita/base/clock.hpp"
#include "partita/base/philox.hpp"
#include "partita/train/run/trainer.hpp"

#include <algorithm>
#include <array>

namespace partita {

namespace {

double largest(double mine, Communicator& world) {
  world.all_reduce(&mine, 1, DType::f64, ReduceOp::max, {}).wait();
  return mine;
}

/// This rank's part of a microbatch: random images, and zeros as targets.
Batch make_batch(const Executor& executor, int microbatch, const std::shared_ptr<Allocator>& allocator) {
  const Shape images = executor.plan().layers_of(microbatch).front()->shape;
  const Target target = executor.target(microbatch);
  const DType dtype = executor.plan().workload.dtype;
  Batch batch{Tensor(dtype, images.names(), executor.images(microbatch), allocator, MemoryClass::activations),
              Tensor(target.labels ? DType::i32 : dtype, target.shape.names(), executor.target_box(microbatch),
                     allocator, MemoryClass::activations)};
  if (batch.images.volume() > 0) fill(batch.images, images, [](Index i) { return Random(1, 1).normal(i); });
  return batch;
}

}  // namespace

struct StepTimer::Parts {
  Parts(const Model& model, const Strategy& strategy, const TrainerOptions& options,
        std::shared_ptr<Communicator> everyone)
      : world(std::move(everyone)),
        trainer(model, strategy, options, world),
        executor(trainer.executor(options.batch, true)) {
    for (int j = 0; j < executor.plan().microbatches; ++j)
      batches.push_back(make_batch(executor, j, std::make_shared<Allocator>()));
  }

  std::shared_ptr<Communicator> world;
  Trainer trainer;
  Executor& executor;
  std::vector<Batch> batches;
  Index step = 0;
};

StepTimer::StepTimer(const Model& model, const Strategy& strategy, const Workload& workload,
                     const MeasureOptions& options, std::shared_ptr<Communicator> world) {
  TrainerOptions o;
  o.batch = workload.batch;
  o.dtype = workload.dtype;
  o.optimizer = workload.optimizer;
  o.backend = options.backend;
  o.threads = options.threads;
  o.kernel_folder = options.kernel_folder;
  parts_ = std::make_unique<Parts>(model, strategy, o, std::move(world));
}

StepTimer::StepTimer(StepTimer&&) noexcept = default;
StepTimer::~StepTimer() = default;

std::vector<Timing> StepTimer::run(double budget) {
  Parts& p = *parts_;
  std::vector<Timing> steps;
  double spent = 0;
  for (int i = 0; i < 7 || spent < budget; ++i, ++p.step) {
    largest(0, *p.world);
    const Stopwatch watch;
    p.executor.run([&](int j) { return p.batches[static_cast<std::size_t>(j)]; }, p.step, 1e-6);
    const Timing mine = watch.time();
    std::array step{mine.seconds, p.world->asynchronous() ? 0 : mine.lost};
    p.world->all_reduce(step.data(), 2, DType::f64, ReduceOp::max, {}).wait();
    spent += step[0];
    if (i >= 2) steps.push_back({step[0], step[1]});
  }
  return steps;
}

MemoryPeak StepTimer::memory() const {
  MemoryPeak peak = parts_->trainer.peak_memory();
  peak.total = static_cast<Index>(largest(static_cast<double>(peak.total), *parts_->world));
  return peak;
}

StepTimes time_steps(const Model& model, const Strategy& strategy, const Workload& workload,
                     const MeasureOptions& options, double budget, const std::shared_ptr<Communicator>& world) {
  StepTimer timer(model, strategy, workload, options, world);
  const std::vector<Timing> steps = timer.run(budget);
  std::vector<double> seconds = undisturbed_seconds(steps);
  std::sort(seconds.begin(), seconds.end());
  const std::size_t count = seconds.size();
  const double median = seconds[count / 2];
  return {median, (seconds[count * 3 / 4] - seconds[count / 4]) / median, static_cast<int>(count),
          static_cast<int>(steps.size() - count), timer.memory()};
}

}  // namespace partita
