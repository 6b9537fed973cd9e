// Replicas of weights and optimizer states stay equal, bit for bit, and a checkpoint holds what was trained. Ranks are
// threads that share memory, as users have them. The master tests check the same over other transports.
// PARTITA_SEED=n runs only that case, PARTITA_CASES=n sets the number of cases.
#include "test/support/replicas.hpp"
#include "partita/comm/thread_ranks.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/planner/planner.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "test/support/cases.hpp"
#include "test/support/lazy_backend.hpp"
#include "test/support/source_folder.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace partita::test::replicas_test {
namespace {

class Replicas : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// Trains a drawn case with layers so wide that their sums take every path of the transports. `run` starts the ranks.
  template <class Run>
  void check_case(std::uint64_t seed, const RandomCase& drawn, Run&& run, const ProcessorOf& processor = {}) {
    SCOPED_TRACE(fmt::format("replay with PARTITA_SEED={}\n{}", seed, drawn.print()));
    try {
      run(drawn.strategy.ranks(),
          [&](Communicator& comm) { train_and_compare(seed, drawn, comm, (folder_ / "case.h5").string(), processor); });
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
  /// Calls check(seed, case) for so many cases of three or more ranks: two numbers have one sum.
  template <class Check>
  void for_cases(std::uint64_t count, Check&& check) {
    if (const auto seed = number_from_environment("PARTITA_SEED", 0); seed != 0)
      return check(seed, RandomCase(seed, wide));
    std::uint64_t done = 0;
    for (std::uint64_t seed = 1; done < count && !HasFailure(); ++seed)
      if (const RandomCase drawn(seed, wide); drawn.strategy.ranks() >= 3) check(seed, drawn), ++done;
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("partita_replicas_test_" + std::to_string(getpid()));
};

TEST_F(Replicas, StayEqualInMemoryThatRanksShare) {
  for_cases(number_from_environment("PARTITA_CASES", lengthy() ? 1000 : cases(60)),
            [&](std::uint64_t seed, const RandomCase& drawn) {
              check_case(seed, drawn, [](int ranks, const auto& body) { run_thread_ranks(ranks, {}, body); });
            });
}

TEST_F(Replicas, StayEqualOverTextbookCollectives) {
  for_cases(lengthy() ? 300 : cases(20),
            [&](std::uint64_t seed, const RandomCase& drawn) { check_case(seed, drawn, run_threads); });
}

// Messages are copies between devices, or they pass through the memory of the CPU.
TEST_F(Replicas, StayEqualOnDevices) {
  for_cases(lengthy() ? 300 : cases(8), [&](std::uint64_t seed, const RandomCase& drawn) {
    LazyDevice device(static_cast<unsigned>(seed));
    check_case(seed, drawn, run_threads, [&](Communicator& threads) {
      return seed % 2 == 0 ? lazy_processor(threads, device) : staged_processor(threads, device);
    });
    device.check();
  });
}

// A convolution is whole on every rank of c, and the rows of fc are cut unevenly over it.
TEST_F(Replicas, StayEqualBesideUnevenCuts) {
  Model m("uneven");
  Value t = m.conv("conv", m.input("image", {.channels = 3, .spatial = {5, 5}}), {.filters = 61, .kernel = 3});
  t = m.linear("fc", m.relu("relu", t), {.features = 5});
  m.softmax_cross_entropy("loss", t);
  for (const auto method :
       {Method::sgd, Method::adagrad, Method::rmsprop, Method::adam, Method::adamw, Method::lars, Method::lamb})
    for (const auto state : {Strategy::OptimizerState::replicated, Strategy::OptimizerState::sharded}) {
      Strategy s("a=3 c=2");
      s.layer("*", {.output = "N@a"}).layer("fc", {.output = "N@a C@c"}).optimizer_state(state);
      TrainerOptions options;
      options.batch = 7;
      options.optimizer.method = method;
      options.check_replicas = 1;
      run_thread_ranks(s.ranks(), {}, [&](Communicator& comm) {
        DrawnData data = data_of(m, options.batch);
        Trainer trainer(m, s, options, comm);
        train(trainer, data, options.batch);
      });
    }
}

TEST_F(Replicas, StayEqualUnderPlannedStrategies) {
  const std::string file = (source_folder() / "examples/machines/dgx-a100.toml").string();
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  const Machine machine = Machine::parse(text.str(), file);
  for (const auto* name : {"lenet5", "fashion-cnn"}) {
    const Model model = builtin_model(name);
    const Workload workload{.batch = 24, .dtype = DType::f32, .training = true, .optimizer = {}};
    for (const auto& planned : plan_strategies(model, workload, machine, {}, {.ranks = 6, .best = 5})) {
      SCOPED_TRACE(planned.strategy.print());
      TrainerOptions options;
      options.batch = workload.batch;
      options.check_replicas = 1;
      run_thread_ranks(6, {}, [&](Communicator& comm) {
        DrawnData data = data_of(model, options.batch);
        Trainer trainer(model, planned.strategy, options, comm);
        train(trainer, data, options.batch);
      });
    }
  }
}

/// Returns the message of the check after a part of a weight or state was changed on one rank.
std::string message_after(const std::string& name, int rank) {
  Model m("small");
  m.softmax_cross_entropy("loss", m.linear("fc", m.input("x", {.channels = 3, .spatial = {1, 1}}), {.features = 5}));
  Strategy s("a=2 b=2");
  s.layer("*", {.output = "N@a"}).layer("fc", {.output = "N@a C@b"});
  std::string message = "no error";
  run_threads(4, [&](Communicator& comm) {
    TrainerOptions options;
    options.batch = 4;
    options.check_replicas = 2;
    Trainer trainer(m, s, options, comm);
    DrawnData data = data_of(m, options.batch);
    const std::vector<Index> samples{0, 1, 2, 3};
    trainer.step(data, samples);
    for (const auto& each :
         TrainerParts::parameters(trainer).named(trainer.plan(), TrainerParts::gradient_grid(trainer), true))
      if (each.name == name && comm.rank() == rank) each.tensor.local.data()[2] ^= std::byte{64};
    try {
      trainer.step(data, samples);
    } catch (const RunFailed& error) {
      if (comm.rank() == 3) message = error.what();  // alike on every rank
    }
  });
  return message;
}

TEST_F(Replicas, DifferencesAreNamed) {
  EXPECT_EQ(message_after("fc/weight", 2).find("after 2 steps, ranks 0 and 2 hold different bits of 'fc/weight', "),
            0U);
  EXPECT_EQ(message_after("fc/bias", 1).find("after 2 steps, ranks 1 and 3 hold different bits of 'fc/bias', "), 0U);
  EXPECT_EQ(message_after("fc/bias.velocity", 3).find("after 2 steps, ranks 1 and 3 hold different bits of 'fc/bias'"),
            0U)
      << "the velocity has changed the bias";
  EXPECT_EQ(message_after("none", 3), "no error");
}

}  // namespace
}  // namespace partita::test::replicas_test
