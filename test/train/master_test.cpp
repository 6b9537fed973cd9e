// The master test: every strategy trains to what one rank computes, whatever the layouts; what it moves is what its
// plan predicted; replicas and repeated runs agree bit for bit. Cases are drawn from seeds: PARTITA_SEED=n runs that
// one alone, PARTITA_CASES=n sets how many.
#include "../support/random_case.hpp"
#include "partita/base/philox.hpp"
#include "partita/comm/threads.hpp"
#include "partita/train/trainer.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

namespace partita::test {
namespace {

constexpr int steps = 3;

/// Images and labels by global index, in no file.
class DrawnData final : public Dataset {
 public:
  DrawnData(Shape sample, Index size, Index classes) : sample_(sample), size_(size), classes_(classes) {}
  Shape sample() const override { return sample_; }
  Index size() const override { return size_; }
  Index classes() const override { return classes_; }
  void hold(std::span<const Index>, const Box&) override {}
  void read(Index sample, const Box& box, std::span<float> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      Index rest = static_cast<Index>(i), index = 0, scale = 1;
      for (int d = box.dims() - 1; d >= 0; --d) {
        index += (box[d].lo + rest % box.extent(d)) * scale;
        rest /= box.extent(d);
        scale *= sample_.extent(d);
      }
      out[i] = static_cast<float>(Random(7, 1).normal(sample * sample_.volume() + index));
    }
  }
  std::int32_t label(Index sample) const override {
    return static_cast<std::int32_t>(Random(7, 2).bits(sample) % static_cast<std::uint32_t>(classes_));
  }

 private:
  Shape sample_;
  Index size_, classes_;
};

/// All that one rank can be asked for after a run.
struct RankResult {
  std::vector<double> losses;
  std::vector<Tensor> outputs, gradients;
  std::vector<NamedTensor> weights;
  std::map<std::pair<std::string, Verb>, Traffic> counted;
  double evaluation = 0;
};

Shape sample_of(const Model& model) {
  const Shape one = model.shapes(1)[0];
  return {{'C', one['C']}, {'H', one['H']}, {'W', one['W']}};
}

RankResult run_rank(const RandomCase& drawn, const Strategy& strategy, Communicator& comm, bool overlap) {
  const Index classes = drawn.model.shapes(1)[drawn.model.layers().size() - 2]['C'];
  DrawnData data(sample_of(drawn.model), steps * drawn.batch, classes);
  TrainerOptions options;
  options.batch = drawn.batch;
  options.dtype = DType::f64;
  options.seed = 3;
  options.backend = "reference";
  options.overlap = overlap;
  options.optimizer = {.rate = 0.02, .momentum = 0.9, .nesterov = true, .weight_decay = 1e-3};
  Trainer trainer(drawn.model, strategy, options, std::shared_ptr<Communicator>(std::shared_ptr<void>(), &comm));
  Executor& executor = trainer.executor(drawn.batch, true);
  executor.keep_outputs(true);
  RankResult result;
  for (Index step = 0; step < steps; ++step) {
    std::vector<Index> samples;
    for (Index n = 0; n < drawn.batch; ++n) samples.push_back(step * drawn.batch + n);
    result.losses.push_back(trainer.train_step(data, samples).loss);
  }
  for (std::size_t i = 0; i < drawn.model.layers().size(); ++i) {
    result.outputs.push_back(executor.output(i).local);
    for (const auto& dw : trainer.parameters().layer(i).gradient) result.gradients.push_back(dw);
  }
  result.counted = trainer.counter().by_label();
  result.weights = trainer.parameters().named(trainer.plan(), true);
  result.evaluation = trainer.evaluate(data, {}).loss;
  return result;
}

std::vector<RankResult> run_ranks(const RandomCase& drawn, const Strategy& strategy, bool overlap = true) {
  std::vector<RankResult> results(static_cast<std::size_t>(strategy.grid().size()));
  run_threads(strategy.grid().size(), [&](Communicator& comm) {
    results[static_cast<std::size_t>(comm.rank())] = run_rank(drawn, strategy, comm, overlap);
  });
  return results;
}

/// Largest difference between `part` and the same box of `whole`, relative to the largest element of `whole`.
double difference(const Tensor& part, const Tensor& whole) {
  double scale = 1e-3, largest = 0;
  for (Index i = 0; i < whole.volume(); ++i) scale = std::max(scale, std::abs(whole.get(i)));
  if (part.volume() == 0) return 0;
  const Tensor same = extract(whole, part.box(), MemoryClass::workspace);
  for (Index i = 0; i < part.volume(); ++i) {
    const double error = std::abs(part.get(i) - same.get(i));
    if (!(error <= largest)) largest = error;  // NaN counts as large
  }
  return largest / scale;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.box() == b.box() && std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0;
}

void expect_near_serial(const RandomCase& drawn, const RankResult& rank, const RankResult& serial) {
  for (std::size_t i = 0; i < serial.losses.size(); ++i)
    EXPECT_NEAR(rank.losses[i], serial.losses[i], 1e-9 * std::max(1.0, std::abs(serial.losses[i])))
        << "loss of step " << i;
  EXPECT_NEAR(rank.evaluation, serial.evaluation, 1e-9 * std::max(1.0, std::abs(serial.evaluation))) << "evaluation";
  for (std::size_t i = 0; i + 1 < serial.outputs.size(); ++i)  // the loss's output is its number
    EXPECT_LT(difference(rank.outputs[i], serial.outputs[i]), 1e-9) << "output of " << drawn.model.layers()[i].name;
  for (std::size_t i = 0; i < serial.weights.size(); ++i)
    EXPECT_LT(difference(rank.weights[i].tensor.local, serial.weights[i].tensor.local), 1e-8) << serial.weights[i].name;
  for (std::size_t i = 0; i < serial.gradients.size(); ++i)
    EXPECT_LT(difference(rank.gradients[i], serial.gradients[i]), 1e-8) << "gradient " << i;
}

void expect_predicted(const Plan& plan, int rank, const RankResult& result) {
  std::map<std::pair<std::string, Verb>, Traffic> predicted;
  for (int layer = 0; layer < static_cast<int>(plan.layers.size()); ++layer)
    for (const auto& item : plan.traffic(layer, rank))
      for (int step = 0; step < steps; ++step)
        predicted[{plan.layers[static_cast<std::size_t>(layer)].name + " " + item.role, item.verb}] += item.traffic;
  const auto print = [](const auto& counts) {
    std::string text;
    for (const auto& [key, traffic] : counts)
      text +=
          fmt::format("  {} {}: {} messages {} bytes\n", key.first, name(key.second), traffic.messages, traffic.bytes);
    return text;
  };
  EXPECT_TRUE(predicted == result.counted) << "rank " << rank << " predicted\n"
                                           << print(predicted) << "counted\n"
                                           << print(result.counted);
}

void expect_replicas_agree(const std::vector<RankResult>& ranks) {
  for (std::size_t r = 1; r < ranks.size(); ++r)
    for (std::size_t i = 0; i < ranks[r].weights.size(); ++i)
      for (std::size_t other = 0; other < r; ++other) {
        const auto &mine = ranks[r].weights[i].tensor.local, &theirs = ranks[other].weights[i].tensor.local;
        if (mine.box() == theirs.box()) {
          EXPECT_TRUE(same_bits(mine, theirs)) << ranks[r].weights[i].name << " on ranks " << other << " and " << r;
        }
      }
}

void check_case(std::uint64_t seed) {
  const RandomCase drawn(seed);
  SCOPED_TRACE(fmt::format("replay with PARTITA_SEED={}\n{}", seed, drawn.print()));
  try {
    const auto serial = run_ranks(drawn, Strategy());
    const auto ranks = run_ranks(drawn, drawn.strategy);
    const Plan plan = bind(drawn.model, drawn.strategy, {drawn.batch, DType::f64, true, {}});
    for (int rank = 0; rank < plan.grid.size(); ++rank) {
      SCOPED_TRACE(fmt::format("rank {}", rank));
      expect_near_serial(drawn, ranks[static_cast<std::size_t>(rank)], serial[0]);
      expect_predicted(plan, rank, ranks[static_cast<std::size_t>(rank)]);
    }
    expect_replicas_agree(ranks);
    if (seed % 4 != 0) return;
    const auto again = run_ranks(drawn, drawn.strategy);
    for (std::size_t r = 0; r < ranks.size(); ++r)
      for (std::size_t i = 0; i < ranks[r].weights.size(); ++i)
        EXPECT_TRUE(same_bits(ranks[r].weights[i].tensor.local, again[r].weights[i].tensor.local))
            << "a second run differs in " << ranks[r].weights[i].name;
    const auto blocking = run_ranks(drawn, drawn.strategy, false);
    for (std::size_t r = 0; r < ranks.size(); ++r) expect_near_serial(drawn, blocking[r], serial[0]);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(Master, EveryStrategyTrainsToTheSerialResult) {
  if (const auto seed = number_from_environment("PARTITA_SEED", 0); seed != 0) return check_case(seed);
  const std::uint64_t cases =
      number_from_environment("PARTITA_CASES", std::getenv("PARTITA_LONG") == nullptr ? 200 : 2000);
  for (std::uint64_t seed = 1; seed <= cases && !HasFailure(); ++seed) check_case(seed);
}

}  // namespace
}  // namespace partita::test
