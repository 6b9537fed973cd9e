// One sample that does not fit on one rank: the activations of the network exceed the memory limit of a rank. It trains
// on four ranks that share the rows and columns of every image. The memory of each rank is known before the run.
//
// $ build/examples/08_larger_than_a_rank
// mesh-tangling on 256x256, one sample per step; limit 20.0 MiB
// one rank: rank 0 of the grid "" holds up to 29.6 MiB (weights 1.1 MiB, gradients 1.1 MiB, optimizer 1.1 MiB, activations 26.4 MiB, workspace 32 B), 9.6 MiB more than the memory limit of 20.0 MiB; shard samples or space over more ranks, or set recompute = true for some layers
// rank 0 of 4 will hold up to 13.6 MiB: weights 1.1 MiB, gradients 1.1 MiB, optimizer 1.1 MiB, activations 6.6 MiB, halos 3.9 MiB, workspace 2.3 KiB
// rank 1 of 4 will hold up to 14.4 MiB: weights 1.1 MiB, gradients 1.1 MiB, optimizer 1.1 MiB, activations 6.6 MiB, halos 4.6 MiB, workspace 2.3 KiB
// rank 2 of 4 will hold up to 14.4 MiB: weights 1.1 MiB, gradients 1.1 MiB, optimizer 1.1 MiB, activations 6.6 MiB, halos 4.6 MiB, workspace 2.3 KiB
// rank 3 of 4 will hold up to 14.4 MiB: weights 1.1 MiB, gradients 1.1 MiB, optimizer 1.1 MiB, activations 6.6 MiB, halos 4.6 MiB, workspace 2.3 KiB
// step 1: loss 0.864056
// step 2: loss 0.651758
// step 3: loss 0.536013
#include <partita/partita.hpp>

#include <fmt/format.h>

using namespace partita;

namespace {

/// Draws one random sample; the rank holds its own box of it.
void draw(const LocalBatch& batch) {
  const SampleBlock &image = batch.images[0], &target = batch.targets[0];
  fill(image.tensor, image.shape, [](Index i) { return Random(1, 1).normal(i); });
  fill(target.tensor, target.shape, [](Index i) { return static_cast<double>(i % 2); });
}

}  // namespace

int main() {
  // The network of Dryden et al. 2019 for 256x256 meshes, with an eighth of the channels. docs/strategies.md has
  // results for 2048x2048 and all channels.
  const Model model = mesh_tangling({.extent = 256, .width = 0.125});
  const Index limit = Index{20} << 20;  // also for the memory that the ranks share, which the plan does not know
  const Workload workload{.batch = 1, .dtype = DType::f64, .optimizer = {.rate = 0.01}};
  fmt::print("{} on 256x256, one sample per step; limit {}\n", model.name(), print_bytes(limit));

  try {
    check_memory(bind(model, Strategy(), workload), limit);
  } catch (const Error& error) {
    fmt::print("one rank: {}\n", error.what());
  }

  Strategy strategy("y=2 x=2");
  strategy.layer("*", {.output = "H@y W@x"});
  const Plan plan = bind(model, strategy, workload);
  check_memory(plan, limit);
  for (int rank = 0; rank < 4; ++rank)
    fmt::print("rank {} of 4 will hold up to {}: {}\n", rank, print_bytes(peak_memory(plan, rank).total),
               peak_memory(plan, rank).each.print());

  run_thread_ranks(4, {}, [&](Communicator& comm) {
    TrainerOptions options;
    options.batch = workload.batch;
    options.dtype = workload.dtype;
    options.optimizer = workload.optimizer;
    options.memory_limit = limit;
    Trainer trainer(model, strategy, options, comm);
    const LocalBatch batch = trainer.make_batch(workload.batch);
    draw(batch);
    for (Index step = 0; step < 3; ++step) {
      const StepResult result = trainer.step(batch);
      if (comm.rank() == 0) fmt::print("step {}: loss {:.6f}\n", step + 1, result.loss);
    }
  });
  return 0;
}
