// Pipelines of two stages on two ranks: compares the measured time of a step with the time that the simulator predicts
// from the times of single actions. The actions are measured just before in a run of their own (GPipe, 4 microbatches),
// because the speed of a machine varies over time. `error` is the relative error of the predicted time. `memory_error`
// is the relative error of the predicted peak of activations and halos.
//   build/mpiexec -n 2 build/bench/pipeline
#include "bench/support/measure.hpp"
#include "partita/base/philox.hpp"
#include "partita/comm/mpi.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/schedule/simulate.hpp"
#include "src/train/kernels/kernel_choice.hpp"
#include "src/train/trainer/trainer_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

using namespace partita;

namespace {

constexpr Index samples = 2;  // per microbatch

/// Two stages of four equal convolutions each.
Model two_halves() {
  Model m("two-halves");
  auto t = m.input("image", {.channels = 3, .spatial = {48, 48}});
  t = m.conv("first", t, {.filters = 64, .kernel = 1});
  for (int i = 0; i < 8; ++i)
    t = m.relu(fmt::format("relu{}", i),
               m.conv(fmt::format("conv{}", i), t, {.filters = 64, .kernel = 3, .padding = 1}));
  t = m.linear("fc", m.global_average_pool("mean", t), {.features = 10});
  m.softmax_cross_entropy("loss", t);
  return m;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

class Run {
 public:
  Run(const std::string& kind, int microbatches, Communicator& world)
      : trainer_(two_halves(), strategy(kind, microbatches), options(microbatches), world),
        executor_(TrainerParts::executor(trainer_, samples * microbatches, true)) {}

  void step() {
    executor_.run([&](int m) { return batch(m); }, step_++, 1e-6);
  }
  Executor& executor() { return executor_; }
  Trainer& trainer() { return trainer_; }

 private:
  static Strategy strategy(const std::string& kind, int microbatches) {
    Strategy s;
    s.group({"image", "relu3"}).group({"conv4", "loss"}).schedule(kind, microbatches);
    return s;
  }
  static TrainerOptions options(int microbatches) {
    TrainerOptions o;
    o.batch = samples * microbatches;
    o.kernel_folder = default_kernel_folder();
    return o;
  }
  Batch batch(int m) const {
    const Shape images = executor_.plan().layers.front()->shape, labels = executor_.target(m).shape;
    const auto own = [&](DType dtype, const Shape& shape, const Box& box) {
      return Tensor(dtype, shape.names(), box, trainer_allocator(), MemoryClass::activations);
    };
    Batch b{{own(DType::f32, images, executor_.images(m))}, own(DType::i32, labels, executor_.target_box(m))};
    if (b.images[0].volume() > 0) fill(b.images[0], images, [](Index i) { return Random(1, 1).normal(i); });
    return b;
  }
  std::shared_ptr<Allocator> trainer_allocator() const { return trainer_.allocator(); }

  Trainer trainer_;
  Executor& executor_;
  Index step_ = 0;
};

/// The median times of the actions of every stage, by kind. Each rank measures its own stage.
/// Collective: both ranks call it.
ScheduleTimes measure_actions(Communicator& world) {
  Run run("gpipe", 4, world);
  run.step();
  std::vector<std::vector<TimedAction>> actions(15);
  std::vector<Timing> timings;
  for (auto& each : actions) {
    run.executor().record(&each);
    timings.push_back(bench::time_once(
        MPI_COMM_WORLD, [&] { run.step(); }, 1));
  }
  run.executor().record(nullptr);
  const auto of = [&](Action::Kind kind) {
    std::vector<double> times;
    for (const std::size_t i : undisturbed(timings))
      for (const auto& [action, start, end] : actions[i])
        if (action.kind == kind) times.push_back(end - start);
    return median(times);
  };
  const std::array mine{of(Action::Kind::forward), of(Action::Kind::backward), of(Action::Kind::reduce),
                        of(Action::Kind::step)};
  std::array<double, 8> all{};
  const std::array<Index, 2> counts{4, 4};
  world.all_gather(mine.data(), all.data(), counts, DType::f64, {}).wait();
  ScheduleTimes times;
  for (std::size_t stage = 0; stage < 2; ++stage)
    times.groups.push_back(
        {all[4 * stage], all[4 * stage + 1] / 2, all[4 * stage + 1] / 2, all[4 * stage + 2], all[4 * stage + 3]});
  // One exchange of as many bytes as cross the stage boundary, packed and unpacked.
  const auto bytes = static_cast<std::size_t>(samples * 64 * 48 * 48) * sizeof(float);
  const std::vector<std::byte> out(bytes);
  std::vector<std::byte> in(bytes);
  const int other = 1 - world.rank();
  std::vector<Timing> round;
  for (int i = 0; i < 21; ++i)
    round.push_back(bench::time_once(
        MPI_COMM_WORLD,
        [&] {
          const std::array send{Send{other, out}};
          const std::array recv{Recv{other, in}};
          if (world.rank() == 0)
            world.exchange(send, {}, {}).wait();
          else
            world.exchange({}, recv, {}).wait();
        },
        1));
  times.transfer = median(undisturbed_seconds(round));
  return times;
}

void measure(const std::string& kind, int microbatches, Communicator& world) {
  const ScheduleTimes times = measure_actions(world);
  Run run(kind, microbatches, world);
  const Plan& plan = run.executor().plan();
  const double predicted = simulate(plan.schedule, graph_of(plan), times).makespan;
  run.step();
  std::vector<Timing> timings;
  for (int i = 0; i < 15; ++i)
    timings.push_back(bench::time_once(
        MPI_COMM_WORLD, [&] { run.step(); }, 1));
  std::vector<double> steps = undisturbed_seconds(timings);
  const double measured = median(steps);
  std::sort(steps.begin(), steps.end());
  const double spread = (steps[steps.size() * 3 / 4] - steps[steps.size() / 4]) / measured;
  const auto peak = peak_memory(plan, world.rank()).each, held = run.trainer().peak_memory().each;
  const auto counted = [](const MemoryUse& use) {
    return static_cast<double>(use[MemoryClass::activations] + use[MemoryClass::halos]);
  };
  double memory = std::abs(counted(held) / counted(peak) - 1);
  world.all_reduce(&memory, 1, DType::f64, ReduceOp::max, {}).wait();
  if (world.rank() == 0)
    fmt::print(
        R"({{"subject": "pipeline", "case": "{}-{}", "ranks": 2, "seconds": {:.3e}, "spread": {:.3f}, "predicted": {:.3e}, )"
        R"("error": {:.4f}, "memory_error": {:.4f}, "ratio": {:.3f}, "against": "the simulator"}})"
        "\n",
        kind, microbatches, measured, spread, predicted, predicted / measured - 1, memory, predicted / measured);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(argc, argv);
  const auto world = session.world();
  if (world->size() != 2) session.abort("bench/pipeline needs 2 ranks: start it with -n 2", 2);
  bench::pin(world->rank());
  for (const char* kind : {"gpipe", "1f1b"})
    for (const int microbatches : {1, 2, 3, 4, 8, 16}) measure(kind, microbatches, *world);
  return 0;
}
