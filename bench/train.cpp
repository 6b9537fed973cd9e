// Compares training steps of a built-in model on all ranks with the same steps on one rank, which runs alone. The cases
// "apart" show the limit of the machine: each rank trains its share of the samples without communication.
//   build/mpiexec -n 2 build/bench/train [TEXT]    only cases whose name contains TEXT
#include "bench/support/measure.hpp"
#include "partita/comm/mpi.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/tensor/dist_tensor.hpp"
#include "partita/train/trainer/trainer.hpp"
#include "src/train/kernels/kernel_choice.hpp"
#include "src/train/measure/draw_images.hpp"

#include <fmt/format.h>

using namespace partita;

namespace {

struct Case {
  const char* name;
  const char* model;
  Index batch;
  const char* grid;      ///< {} stands for the number of ranks
  const char* layout;    ///< layout of every layer's output
  double budget;         ///< seconds
  bool apart = false;    ///< ranks do not communicate
  bool heads = false;    ///< pairs of a transformer's linear layers are cut over the axis t
  ModelSize size = {};   ///< of the model
  bool sharded = false;  ///< ranks share the update
};

const ModelSize small_vit{.extent = 64, .classes = 10, .transformer = {.patch = 8}};

const Case cases[]{
    {"fashion-cnn-sample-batch128", "fashion-cnn", 128, "data={}", "N@data", 20},
    {"fashion-cnn-apart-batch128", "fashion-cnn", 128, "data={}", "N@data", 20, true},
    {"fashion-cnn-spatial-batch128", "fashion-cnn", 128, "y={}", "H@y", 20},
    {"resnet50-sample-batch16", "resnet50", 16, "data={}", "N@data", 20},
    {"resnet50-apart-batch16", "resnet50", 16, "data={}", "N@data", 20, true},
    {"mesh-tangling-spatial-batch1", "mesh-tangling", 1, "y={}", "H@y", 60},
    {"unet3d-spatial-batch1", "unet3d", 1, "d={}", "D@d", 40},
    {"gpt-sample-batch8", "gpt", 8, "data={}", "N@data", 20},
    {"gpt-heads-batch8", "gpt", 8, "t={}", "", 20, false, true},
    {"vit-sample-batch16", "vit", 16, "data={}", "N@data", 20, false, false, small_vit},
    {"vit-sample-sharded-batch16", "vit", 16, "data={}", "N@data", 20, false, false, small_vit, true},
};

/// The strategy of a case on so many ranks.
Strategy strategy_of(const Case& c, int ranks) {
  Strategy strategy(fmt::format(fmt::runtime(c.grid), ranks));
  strategy.layer("*", {.output = c.layout});
  if (c.sharded) strategy.optimizer_state(Strategy::OptimizerState::sharded);
  if (!c.heads) return strategy;
  // As examples/strategies/gpt-columns-rows.toml.
  strategy.layer("embedding", {.weights = "V@t"});
  for (const char* wide : {"*_qkv", "*_attention", "*_up", "*_gelu", "scores"}) strategy.layer(wide, {.output = "C@t"});
  return strategy;
}

/// A trainer that repeats steps on one batch of random images or tokens.
class Steps {
 public:
  Steps(const Case& c, const Strategy& strategy, Communicator& comm)
      : trainer_(builtin_model(c.model, c.size), strategy,
                 {.batch = c.batch,
                  .optimizer = {.rate = 0.001},
                  .augmentation = {},
                  .kernel_folder = default_kernel_folder()},
                 comm),
        batch_(trainer_.make_batch(c.batch)) {
    const SampleBlock& labels = batch_.targets[0];
    draw_images(batch_, trainer_.plan());
    fill(labels.tensor, labels.shape, [](Index n) { return static_cast<double>(n % 2); });
  }
  void run() { trainer_.step(batch_); }

 private:
  Trainer trainer_;
  LocalBatch batch_;
};

void measure(const Case& c, Communicator& world, Communicator& self) {
  const Strategy strategy = strategy_of(c, world.size());
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
