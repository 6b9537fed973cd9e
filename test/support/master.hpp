#pragma once

// What the master tests on thread ranks and on MPI ranks share. They train a random case on several ranks and compare
// the results with a serial run and with the plan's predictions.

#include "partita/base/philox.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "test/support/random_case.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

namespace partita::test {

inline constexpr int steps = 3;

/// A data set of random images and targets. Each element depends on its input and its global index only.
class DrawnData final : public DatasetOfInputs {
 public:
  /// `target` is the target of a batch of one sample.
  DrawnData(std::vector<SampleInput> inputs, const Target& target, Index size, Index classes);
  std::vector<SampleInput> inputs() const override { return inputs_; }
  Shape target() const override { return target_; }
  Index size() const override { return size_; }
  Index classes() const override { return classes_; }
  void hold_input(int, std::span<const Index>, const Box&) override {}
  void read_input(int input, Index sample, const Box& box, std::span<double> out) const override;
  void read_target(Index sample, const Box& box, std::span<double> out) const override;
  void read_labels(Index sample, const Box& box, std::span<std::int32_t> out) const override;

 private:
  std::vector<SampleInput> inputs_;
  Shape target_;
  Index size_, classes_;
};

/// Everything that one rank reports after a run.
struct RankResult {
  std::vector<double> losses, norms;  // of each step: the loss, and the norm of the gradients
  std::vector<Tensor> outputs;
  std::map<std::string, Tensor> gradients;
  std::vector<NamedTensor> weights;
  std::map<std::pair<std::string, Verb>, Traffic> counted;
  double evaluation = 0;
  MemoryPeak memory, predicted;
};

/// Returns the inputs that a model reads; tokens are those that all their readers know.
std::vector<SampleInput> inputs_of(const Model& model);
/// Returns data for a model: values or tokens, and targets of its loss. Its inputs are in the opposite order.
DrawnData data_of(const Model& model, Index samples);
/// Returns a batch for an executor on one rank. `image(input, i)` and `label(i)` return its elements, which are taken
/// modulo the vocabulary or the number of classes where they are whole numbers.
Batch batch_of(const Model& model, const Executor& executor, const std::function<double(int input, Index i)>& image,
               const std::function<double(Index i)>& label);

Workload workload_of(const RandomCase& drawn);

enum class Weights { drawn, nudged };
/// Whether all outputs are kept, so that tests can compare them, or released when no layer needs them any more.
enum class Outputs { kept, released };

/// Where the ranks of a test compute; {}: on the CPU.
using ProcessorOf = std::function<Processor(Communicator&)>;

/// Trains a case for `steps` steps on one rank of `comm`, evaluates it, and returns the rank's results, in the memory
/// of the CPU. Collective: every rank of `comm` calls it.
RankResult run_rank(const RandomCase& drawn, const Strategy& strategy, Communicator& comm, bool overlap,
                    Weights weights = Weights::drawn, Outputs outputs = Outputs::kept,
                    const ProcessorOf& processor = {});

/// Returns the largest difference between `part` and the same box of `whole`. It is relative to the largest element of
/// `whole`, or to `scale` if that is larger.
double difference(const Tensor& part, const Tensor& whole, double scale);
bool same_bits(const Tensor& a, const Tensor& b);

/// The results of one rank, and its results from weights that differ in their last bit.
struct SerialResult {
  RankResult run, nudged;
};

SerialResult run_serially(const RandomCase& drawn);

/// Expects the results of a rank to be near the serial ones. Returns true if the case magnifies rounding so much that a
/// fixed bound had to be widened; the master tests limit the number of such cases.
[[nodiscard]] bool expect_near_serial(const RandomCase& drawn, const RankResult& rank, const SerialResult& both);

/// Expects the predicted peak memory for a run that released its outputs: by the plan alone, which does not know how
/// messages travel, and by the trainer.
void expect_predicted_memory(const Plan& plan, int rank, const RankResult& result);

/// Expects the counted traffic to equal the plan's prediction.
void expect_predicted(const Plan& plan, int rank, const RankResult& result);

}  // namespace partita::test
