// Checks the serial result itself: the derivative of the loss along a random direction of all weights, from the
// gradients and from central differences, for randomly drawn models. All partitioned runs are compared with one rank's
// results.
#include "partita/base/philox.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "test/support/master.hpp"

namespace partita::test::gradient_test {
namespace {

/// Moves every trained weight by `distance` along a direction of standard normal numbers.
void move(Parameters& parameters, const Plan& plan, double distance) {
  for (std::size_t i = 0; i < plan.layers.size(); ++i)
    for (std::size_t j = 0; j < plan.layers[i]->weights.size(); ++j) {
      if (!plan.layers[i]->weights[j].trained) continue;
      const Tensor& w = parameters.layer(i).master[j].local;
      const Random direction(5, 1000 * i + j);
      for (Index k = 0; k < w.volume(); ++k) w.set(k, w.get(k) + distance * direction.normal(k));
    }
}

/// The derivative along the same direction, from the gradients of the last run.
double slope(Parameters& parameters, const Plan& plan) {
  double sum = 0;
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    std::size_t trained = 0;
    for (std::size_t j = 0; j < plan.layers[i]->weights.size(); ++j) {
      if (!plan.layers[i]->weights[j].trained) continue;
      const Tensor& dw = parameters.layer(i).gradient[trained++];
      const Random direction(5, 1000 * i + j);
      for (Index k = 0; k < dw.volume(); ++k) sum += dw.get(k) * direction.normal(k);
    }
  }
  return sum;
}

/// Relative distance of the two derivatives. A kink of a ReLU or maximum between the two points spoils one step size,
/// not all.
double derivative_error(const RandomCase& drawn) {
  double best = 1;
  run_threads(1, [&](Communicator& comm) {
    TrainerOptions options;
    options.check_replicas = 1;
    options.batch = drawn.batch;
    options.dtype = DType::f64;
    options.backend = "reference";
    Trainer trainer(drawn.model, Strategy(), options, comm);
    Executor& executor = TrainerParts::executor(trainer, drawn.batch, true);
    const bool labels = executor.target().labels;
    const Batch batch = batch_of(
        drawn.model, executor,
        [&](int input, Index i) {
          const bool tokens = drawn.model.layers()[drawn.model.inputs()[input]].op->integers();
          return tokens ? static_cast<double>(i) : Random(6, 1 + 10 * static_cast<std::uint64_t>(input)).normal(i);
        },
        [&](Index i) { return labels ? static_cast<double>(i) : Random(6, 2).normal(i); });
    constexpr double still = 1e-300;  // a learning rate that changes nothing
    move(TrainerParts::parameters(trainer), trainer.plan(),
         0.1);  // nonzero biases: with padding alone the input would be at the kink of a ReLU
    executor.run(batch, 0, still);
    const double exact = slope(TrainerParts::parameters(trainer), trainer.plan());
    for (const double h : {1e-4, 1e-5, 1e-6, 1e-7}) {
      move(TrainerParts::parameters(trainer), trainer.plan(), h);
      const double above = executor.run(batch, 0, still).loss;
      move(TrainerParts::parameters(trainer), trainer.plan(), -2 * h);
      const double below = executor.run(batch, 0, still).loss;
      move(TrainerParts::parameters(trainer), trainer.plan(), h);
      best = std::min(best, std::abs((above - below) / (2 * h) - exact) / std::max(std::abs(exact), 1e-2));
    }
  });
  return best;
}

TEST(Gradient, AgreesWithDifferencesOfTheLoss) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const RandomCase drawn(seed);
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, drawn.model.describe()));
    EXPECT_LT(derivative_error(drawn), 1e-4);
  }
}

}  // namespace
}  // namespace partita::test::gradient_test
