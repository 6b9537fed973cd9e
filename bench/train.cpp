// Compares training steps of a built-in model on all ranks with the same steps on one rank, which runs alone. The cases
// "apart" show the limit of the machine: each rank trains its share of the samples without communication.
//   build/mpiexec -n 2 build/bench/train [TEXT]    only cases whose name contains TEXT
#include "bench/support/measure.hpp"
#include "partita/base/philox.hpp"
#include "partita/comm/mpi.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/train/run/trainer.hpp"

#include <fmt/format.h>

using namespace partita;

namespace {

struct Case {
  const char* name;
  const char* model;
  Index batch;
  const char* grid;    ///< {} stands for the number of ranks
  const char* layout;  ///< layout of every layer's output
  double budget;       ///< seconds
  bool apart = false;  ///< ranks do not communicate
};

constexpr Case cases[]{
    {"fashion-cnn-sample-batch128", "fashion-cnn", 128, "data={}", "N@data", 20},
    {"fashion-cnn-apart-batch128", "fashion-cnn", 128, "data={}", "N@data", 20, true},
    {"fashion-cnn-spatial-batch128", "fashion-cnn", 128, "y={}", "H@y", 20},
    {"resnet50-sample-batch16", "resnet50", 16, "data={}", "N@data", 20},
    {"resnet50-apart-batch16", "resnet50", 16, "data={}", "N@data", 20, true},
    {"mesh-tangling-spatial-batch1", "mesh-tangling", 1, "y={}", "H@y", 60},
    {"unet3d-spatial-batch1", "unet3d", 1, "d={}", "D@d", 40},
};

/// A trainer that repeats steps on one batch of random images.
class Steps {
 public:
  Steps(const Case& c, const Strategy& strategy, const std::shared_ptr<Communicator>& comm)
      : trainer_(builtin_model(c.model), strategy,
                 {.batch = c.batch, .optimizer = {}, .augmentation = {}, .kernel_folder = default_kernel_folder()},
                 comm),
        executor_(trainer_.executor(c.batch, true)) {
    const Shape images = executor_.plan().layers.front()->shape, labels = executor_.target().shape;
    batch_ = {Tensor(DType::f32, images.names(), executor_.images()),
              Tensor(DType::i32, labels.names(), executor_.target_box())};
    fill(batch_.images, images, [](Index i) { return Random(1, 1).normal(i); });
    fill(batch_.target, labels, [](Index n) { return static_cast<double>(n % 2); });
  }
  void run() { executor_.run(batch_, step_++, 0.001); }

 private:
  Trainer trainer_;
  Executor& executor_;
  Batch batch_;
  Index step_ = 0;
};

void measure(const Case& c, const std::shared_ptr<Communicator>& world, const std::shared_ptr<Communicator>& self) {
  Strategy strategy(fmt::format(fmt::runtime(c.grid), world->size()));
  strategy.layer("*", {.output = c.layout});
  Case share = c;
  share.batch /= world->size();
  Steps alone(c, Strategy(), self);
  Steps together = c.apart ? Steps(share, Strategy(), self) : Steps(c, strategy, world);
  const auto ours = [&] { together.run(); };
  const auto theirs = [&] {
    if (world->rank() == 0) alone.run();
  };
  bench::print(MPI_COMM_WORLD, "train", c.name, bench::compare(MPI_COMM_WORLD, ours, theirs, c.budget), "one rank");
}

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(argc, argv);
  const auto world = session.world();
  bench::pin(world->rank());
  const auto self = world->split(world->rank(), 0);
  for (const Case& c : cases)
    if (argc < 2 || std::string_view(c.name).find(argv[1]) != std::string_view::npos) measure(c, world, self);
  return 0;
}
