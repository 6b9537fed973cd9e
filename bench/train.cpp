// Compares training steps of a built-in model on all ranks with the same steps on one rank, which runs alone. The cases
// "apart" show the limit of the machine: each rank trains its share of the samples without communication.
//   build/mpiexec -n 2 build/bench/train [TEXT]    only cases whose name contains TEXT
#include "bench/support/measure.hpp"
#include "partita/base/philox.hpp"
#include "partita/comm/mpi.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/tensor/dist_tensor.hpp"
#include "partita/train/trainer/trainer.hpp"
#include "src/train/kernels/kernel_choice.hpp"

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
  Steps(const Case& c, const Strategy& strategy, Communicator& comm)
      : trainer_(builtin_model(c.model), strategy,
                 {.batch = c.batch,
                  .optimizer = {.rate = 0.001},
                  .augmentation = {},
                  .kernel_folder = default_kernel_folder()},
                 comm),
        batch_(trainer_.make_batch(c.batch)) {
    const SampleBlock &images = batch_.images[0], &labels = batch_.targets[0];
    fill(images.tensor, images.shape, [](Index i) { return Random(1, 1).normal(i); });
    fill(labels.tensor, labels.shape, [](Index n) { return static_cast<double>(n % 2); });
  }
  void run() { trainer_.step(batch_); }

 private:
  Trainer trainer_;
  LocalBatch batch_;
};

void measure(const Case& c, Communicator& world, Communicator& self) {
  Strategy strategy(fmt::format(fmt::runtime(c.grid), world.size()));
  strategy.layer("*", {.output = c.layout});
  Case share = c;
  share.batch /= world.size();
  Steps alone(c, Strategy(), self);
  Steps together = c.apart ? Steps(share, Strategy(), self) : Steps(c, strategy, world);
  const auto ours = [&] { together.run(); };
  const auto theirs = [&] {
    if (world.rank() == 0) alone.run();
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
    if (argc < 2 || std::string_view(c.name).find(argv[1]) != std::string_view::npos) measure(c, *world, *self);
  return 0;
}
