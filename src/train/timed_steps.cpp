#include "partita/train/timed_steps.hpp"

#include "partita/base/philox.hpp"
#include "partita/train/trainer.hpp"

#include <algorithm>
#include <array>
#include <chrono>

namespace partita {

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double largest(double mine, Communicator& world) {
  world.all_reduce(&mine, 1, DType::f64, Op::max, {}).wait();
  return mine;
}

/// This rank's part of a microbatch: images at random, zeros as targets.
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

StepTimes time_steps(const Model& model, const Strategy& strategy, const Workload& workload,
                     const MeasureOptions& options, double budget, const std::shared_ptr<Communicator>& world) {
  TrainerOptions o;
  o.batch = workload.batch;
  o.dtype = workload.dtype;
  o.optimizer = workload.optimizer;
  o.backend = options.backend;
  o.threads = options.threads;
  o.kernel_folder = options.kernel_folder;
  Trainer trainer(model, strategy, o, world);
  Executor& executor = trainer.executor(workload.batch, true);
  std::vector<Batch> batches;
  for (int j = 0; j < executor.plan().microbatches; ++j)
    batches.push_back(make_batch(executor, j, std::make_shared<Allocator>()));
  std::vector<double> seconds;
  double spent = 0;
  for (Index step = 0; step < 7 || spent < budget; ++step) {
    largest(0, *world);
    const double begin = now();
    executor.run([&](int j) { return batches[static_cast<std::size_t>(j)]; }, step, 1e-6);
    const double taken = largest(now() - begin, *world);
    spent += taken;
    if (step >= 2) seconds.push_back(taken);
  }
  std::sort(seconds.begin(), seconds.end());
  const std::size_t count = seconds.size();
  StepTimes times{seconds[count / 2], (seconds[count * 3 / 4] - seconds[count / 4]) / seconds[count / 2],
                  static_cast<int>(count), trainer.peak_memory()};
  times.memory.total = static_cast<Index>(largest(static_cast<double>(times.memory.total), *world));
  return times;
}

}  // namespace partita
