#pragma once

// What the tests of replicas on thread ranks and on MPI ranks share.

#include "partita/train/checkpoint/checkpoint.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "test/support/master.hpp"

#include <array>
#include <memory>

namespace partita::test {

/// Trains for some steps, in which the trainer compares its replicas.
inline void train(Trainer& trainer, Dataset& data, Index batch) {
  std::vector<Index> samples;
  for (Index n = 0; n < batch; ++n) samples.push_back(n);
  for (int step = 0; step < steps; ++step) trainer.step(data, samples);
}

/// Saves a trained network and loads it into a trainer of the same grid: its weights, states and evaluation are the
/// same bits.
inline void expect_saved(Trainer& trained, Trainer& loaded, Dataset& data, const std::string& path) {
  trained.save(path);
  loaded.load(path, true);
  const auto named = [](Trainer& trainer) {
    return TrainerParts::parameters(trainer).named(trainer.plan(), TrainerParts::gradient_grid(trainer), true);
  };
  const auto before = named(trained), after = named(loaded);
  const auto here = [](const Tensor& tensor) { return on_host(tensor, tensor.stream()); };
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(same_bits(here(before[i].tensor.local), here(after[i].tensor.local)))
        << before[i].name << " differs in the file";
  EXPECT_EQ(trained.evaluate(data, {}).loss, loaded.evaluate(data, {}).loss);
}

/// The factor of the layers' widths in drawn cases of replicas (RandomCase).
inline constexpr Index wide = 17;

/// Trains a drawn case, in which each step compares the replicas. Every fourth case is saved to `path` and loaded
/// again. Collective: every rank of `comm` calls it.
inline void train_and_compare(std::uint64_t seed, const RandomCase& drawn, Communicator& comm, const std::string& path,
                              const ProcessorOf& processor = {}) {
  TrainerOptions options;
  options.batch = drawn.batch;
  options.dtype = std::array{DType::f64, DType::f32, DType::bf16}[seed % 3];
  options.optimizer = drawn.optimizer;
  options.check_replicas = 1;
  options.on_nan = OnNan::skip;  // a drawn case may diverge in bf16
  DrawnData data = data_of(drawn.model, drawn.batch);
  const auto made = [&] {
    return std::make_unique<Trainer>(
        drawn.model, drawn.strategy, options, comm,
        processor ? processor(comm) : cpu_processor(comm, make_backend("reference", options.dtype, 1)));
  };
  const auto trained = made();
  train(*trained, data, drawn.batch);
  if (seed % 4 == 0 && options.dtype == DType::f64 && !hdf5_version().empty())
    expect_saved(*trained, *made(), data, path);
}

}  // namespace partita::test
