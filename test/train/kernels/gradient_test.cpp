// Checks the serial result itself: the derivative of the loss along a random direction of all weights, from the
// gradients and from central differences, for randomly drawn models. All partitioned runs are compared with one rank's
// results.
#include "partita/base/philox.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/model/expert_operators.hpp"
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

/// The losses that balance experts, which the loss of a step does not have: by the definition, from the scores.
double balancing(const Model& model, const Executor& executor) {
  double loss = 0;
  for (const Layer& layer : model.layers()) {
    const auto* op = dynamic_cast<const CombineOperator*>(layer.op.get());
    if (op == nullptr || op->experts().balance == 0) continue;
    const Tensor scores = executor.output(static_cast<std::size_t>(layer.inputs[0]));
    const Index samples = scores.extent('N'), experts = scores.extent('C'), places = scores.extent('L');
    for (Index n = 0; n < samples; ++n) {
      std::vector<double> chosen(static_cast<std::size_t>(experts)), mean(chosen.size());
      for (Index l = 0; l < places; ++l) {
        double sum = 0;
        for (Index e = 0; e < experts; ++e) sum += std::exp(scores.at({n, e, l}));
        for (Index e = 0; e < experts; ++e) {
          const double own = scores.at({n, e, l});
          mean[e] += std::exp(own) / sum / static_cast<double>(places);
          Index better = 0;
          for (Index other = 0; other < experts; ++other) {
            const double score = scores.at({n, other, l});
            better += score > own || (score == own && other < e) ? 1 : 0;
          }
          if (better < op->experts().chosen) chosen[e] += 1 / static_cast<double>(places * op->experts().chosen);
        }
      }
      for (Index e = 0; e < experts; ++e)
        loss +=
            op->experts().balance * static_cast<double>(experts) * chosen[e] * mean[e] / static_cast<double>(samples);
    }
  }
  return loss;
}

/// Relative distance of the two derivatives. A kink of a ReLU or maximum between the two points spoils one step size,
/// not all.
double derivative_error(const Model& model, Index batch_size) {
  double best = 1;
  run_threads(1, [&](Communicator& comm) {
    TrainerOptions options;
    options.check_replicas = 1;
    options.batch = batch_size;
    options.dtype = DType::f64;
    options.backend = "reference";
    Trainer trainer(model, Strategy(), options, comm);
    Executor& executor = TrainerParts::executor(trainer, batch_size, true);
    executor.keep_outputs(true);
    const bool labels = executor.target().labels;
    const Batch batch = batch_of(
        model, executor,
        [&](int input, Index i) {
          const bool tokens = model.layers()[model.inputs()[input]].op->integers();
          return tokens ? static_cast<double>(i) : Random(6, 1 + 10 * static_cast<std::uint64_t>(input)).normal(i);
        },
        [&](Index i) { return labels ? static_cast<double>(i) : Random(6, 2).normal(i); });
    constexpr double still = 1e-300;  // a learning rate that changes nothing
    move(TrainerParts::parameters(trainer), trainer.plan(),
         0.1);  // nonzero biases: with padding alone the input would be at the kink of a ReLU
    executor.run(batch, 0, still);
    const double exact = slope(TrainerParts::parameters(trainer), trainer.plan());
    const auto loss = [&] {
      const StepResult result = executor.run(batch, 0, still);
      return result.loss + (result.weight > 0 ? balancing(model, executor) / result.weight : 0);
    };
    for (const double h : {1e-4, 1e-5, 1e-6, 1e-7}) {
      move(TrainerParts::parameters(trainer), trainer.plan(), h);
      const double above = loss();
      move(TrainerParts::parameters(trainer), trainer.plan(), -2 * h);
      const double below = loss();
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
    EXPECT_LT(derivative_error(drawn.model, drawn.batch), 1e-4);
  }
}

// Some places are dropped where the capacity is small, and experts are chosen unevenly.
TEST(Gradient, OfExpertsAgreesWithDifferencesOfTheLoss) {
  for (const Index chosen : {1, 2, 4})
    for (const double capacity : {0.5, 1.25, 4.0})
      for (const bool normalized : {false, true})
        for (const double balance : {0.0, 0.3}) {
          const Experts experts{4, chosen, capacity, normalized, balance};
          Model m("experts");
          const Value in = m.input("in", {.channels = 3, .length = 7});
          const Value scores = m.linear("router", in, {.features = 4, .per_place = true});
          Value t = m.dispatch("dispatch", in, scores, experts);
          t = m.gelu("gelu", m.linear("up", t, {.features = 20, .per_place = true, .groups = 4}));
          t = m.linear("down", t, {.features = 8, .bias = false, .per_place = true, .groups = 4});
          t = m.linear("mixed", m.combine("combine", scores, t, experts), {.features = 3, .per_place = true});
          m.softmax_cross_entropy("loss", t);
          SCOPED_TRACE(m.describe());
          EXPECT_LT(derivative_error(m, 3), 1e-6);
        }
}

}  // namespace
}  // namespace partita::test::gradient_test
