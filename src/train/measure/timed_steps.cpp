#include "src/train/measure/timed_steps.hpp"

#include "partita/strategies/plan/memory.hpp"
#include "partita/train/trainer/trainer.hpp"
#include "src/system/clock.hpp"
#include "src/train/measure/draw_images.hpp"
#include "src/train/measure/summaries.hpp"

#include <algorithm>
#include <array>

namespace partita {

struct StepTimer::Parts {
  Parts(const Model& model, const Strategy& strategy, const TrainerOptions& options, Processor processor,
        Communicator& everyone)
      : world(everyone),
        trainer(model, strategy, options, world, std::move(processor)),
        batch(trainer.make_batch(options.batch)) {
    draw_images(batch, trainer.plan());
  }

  Communicator& world;
  Trainer trainer;
  LocalBatch batch;  // images at random, zeros as targets
};

StepTimer::StepTimer(const Model& model, const Strategy& strategy, const Workload& workload,
                     const MeasureOptions& options, Communicator& world) {
  TrainerOptions o;
  o.batch = workload.batch;
  o.dtype = workload.dtype;
  o.optimizer = workload.optimizer;
  o.optimizer.rate = 1e-6;  // nothing is to be learned
  o.optimizer.warm_up = 0;
  o.optimizer.decay = Decay::none;
  o.backend = options.backend;
  o.threads = options.threads;
  o.kernel_folder = options.kernel_folder;
  Processor processor = options.device ? options.device->make(o.dtype)
                                       : cpu_processor(world, make_backend(o.backend, o.dtype, o.threads));
  parts_ = std::make_unique<Parts>(model, strategy, o, std::move(processor), world);
}

StepTimer::StepTimer(StepTimer&&) noexcept = default;
StepTimer::~StepTimer() = default;

std::vector<Timing> StepTimer::run(double budget) {
  Parts& p = *parts_;
  std::vector<Timing> steps;
  double spent = 0;
  for (int i = 0; i < 7 || spent < budget; ++i) {
    largest(0, p.world);
    const Stopwatch watch;
    p.trainer.step(p.batch);
    const Timing mine = watch.time();
    std::array step{mine.seconds, p.world.asynchronous() ? 0 : mine.lost};
    p.world.all_reduce(step.data(), 2, DType::f64, ReduceOp::max, {}).wait();
    spent += step[0];
    if (i >= 2) steps.push_back({step[0], step[1]});
  }
  return steps;
}

MemoryPeak StepTimer::memory() const {
  MemoryPeak peak = parts_->trainer.peak_memory();
  peak.total -= peak.each[MemoryClass::shared];  // it is the same all the time, and no part of a plan
  peak.total = static_cast<Index>(largest(static_cast<double>(peak.total), parts_->world));
  return peak;
}

StepTimes time_steps(const Model& model, const Strategy& strategy, const Workload& workload,
                     const MeasureOptions& options, double budget, Communicator& world) {
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
