// Training steps of a built-in model on all ranks against the same steps on one rank, which runs alone. "apart" is the
// machine's own limit: ranks that each train their share of the samples and never speak to each other.
//   build/mpiexec -n 2 build/bench/train [CASES]    those whose name contains the text
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
  const char* grid;    ///< of N ranks
  const char* layout;  ///< of every layer's output
  double budget;       ///< seconds
  bool apart = false;
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

/// A trainer with a batch of random images, to be run again and again.
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
