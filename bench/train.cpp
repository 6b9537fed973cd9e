// Training steps of fashion-cnn on all ranks against the same steps on one rank, which runs alone.
//   build/mpiexec -n 2 build/bench/train
#include "partita/base/philox.hpp"
#include "partita/comm/mpi.hpp"
#include "partita/model/builtin.hpp"
#include "partita/train/trainer.hpp"
#include "support/measure.hpp"

#include <fmt/format.h>

using namespace partita;

namespace {

constexpr Index batch_size = 128;

/// A trainer with a batch of random images, to be run again and again.
class Steps {
 public:
  Steps(const Strategy& strategy, const std::shared_ptr<Communicator>& comm)
      : trainer_(fashion_cnn(), strategy,
                 {.batch = batch_size, .optimizer = {}, .augmentation = {}, .kernel_folder = default_kernel_folder()},
                 comm),
        executor_(trainer_.executor(batch_size, true)) {
    batch_.images = Tensor(DType::f32, "NCHW", executor_.images());
    fill(batch_.images, executor_.plan().layers.front().shape, [](Index i) { return Random(1, 1).normal(i); });
    batch_.target = Tensor(DType::i32, "N", executor_.target_box());
    fill(batch_.target, executor_.target().shape, [](Index n) { return static_cast<double>(n % 10); });
  }
  void run() { executor_.run(batch_, step_++, 0.001); }

 private:
  Trainer trainer_;
  Executor& executor_;
  Batch batch_;
  Index step_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(argc, argv);
  const auto world = session.world();
  bench::pin(world->rank());
  const auto self = world->split(world->rank(), 0);
  Steps alone(Strategy(), self);
  for (const auto& [name, grid, rule] :
       {std::tuple("sample", "data={}", "N@data"), std::tuple("spatial", "y={}", "H@y")}) {
    Strategy strategy(fmt::format(fmt::runtime(grid), world->size()));
    strategy.layer("*", {.output = rule});
    Steps together(strategy, world);
    const auto ours = [&] { together.run(); };
    const auto theirs = [&] {
      if (world->rank() == 0) alone.run();
    };
    bench::print(MPI_COMM_WORLD, "train", fmt::format("fashion-cnn-{}-batch{}", name, batch_size),
                 bench::compare(MPI_COMM_WORLD, ours, theirs, 6), "one rank");
  }
  return 0;
}
