#include "test/support/master.hpp"

#include "partita/base/philox.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/train/trainer/trainer_parts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace partita::test {

namespace {

/// Calls f(position in the box, global index) for each element.
template <class F>
void for_places(Index sample, const Shape& shape, const Box& box, F&& f) {
  const Index count = box.dims() == 0 ? 1 : box.volume();
  for (Index i = 0; i < count; ++i) {
    Index rest = i, index = 0, scale = 1;
    for (int d = box.dims() - 1; d >= 0; --d) {
      index += (box[d].lo + rest % box.extent(d)) * scale;
      rest /= box.extent(d);
      scale *= shape.extent(d);
    }
    f(static_cast<std::size_t>(i), sample * scale + index);
  }
}

/// Calls change(copy) with a copy of a tensor in the memory of the CPU, and stores what it makes of it.
template <class Change>
void change_on_host(const Tensor& tensor, Change&& change) {
  const Tensor copy = on_host(tensor, tensor.stream());
  change(copy);
  from_host(copy, tensor, tensor.stream());
}

/// Draws random values for weights that start at zero, such as biases. A zero bias next to padding makes exact ties (in
/// a maximum, or at the kink of a ReLU), which rounding would break differently on every grid.
void draw_biases(Trainer& trainer) {
  const Plan& plan = trainer.plan();
  for (std::size_t i = 0; i < plan.layers.size(); ++i)
    for (std::size_t j = 0; j < plan.layers[i]->weights.size(); ++j) {
      const auto& spec = plan.layers[i]->weights[j];
      if (TrainerParts::parameters(trainer).layer(i).master.empty()) continue;  // the layer belongs to another stage
      if (!spec.trained || spec.init != Init::zeros) continue;
      const Random random(9, 100 * i + j);
      change_on_host(TrainerParts::parameters(trainer).layer(i).master[j].local, [&](const Tensor& weight) {
        fill(weight, spec.shape, [&](Index k) { return 0.1 * random.normal(k); });
      });
    }
}

/// Changes the last bit of every weight, randomly up or down, to simulate a rounding error.
void nudge_weights(Trainer& trainer) {
  const auto& layers = trainer.plan().layers;
  for (std::size_t i = 0; i < layers.size(); ++i)
    for (std::size_t j = 0; j < layers[i]->weights.size(); ++j) {
      if (!layers[i]->weights[j].trained || TrainerParts::parameters(trainer).layer(i).master.empty()) continue;
      const Random random(11, 100 * i + j);
      change_on_host(TrainerParts::parameters(trainer).layer(i).master[j].local, [&](const Tensor& weight) {
        for (Index k = 0; k < weight.volume(); ++k)
          weight.set(k, std::nextafter(weight.get(k), random.normal(k) < 0 ? -1e9 : 1e9));
      });
    }
}

/// Returns the largest absolute value.
double largest(const Tensor& tensor) {
  double most = 0;
  for (Index i = 0; i < tensor.volume(); ++i) most = std::max(most, std::abs(tensor.get(i)));
  return most;
}

/// The largest allowed difference between a result and the serial one. Some drawn cases magnify rounding errors, e.g.
/// RMSProp with a gradient that is zero except for rounding. For them the bound is ten times the change that follows
/// from changing the last bit of the weights, since no order of sums is more correct than that.
class Bound {
 public:
  double operator()(double fixed, double moved_by_nudge) {
    const double conditioned = 10 * moved_by_nudge;
    widened_ = widened_ || !(conditioned <= fixed);
    return std::max(fixed, conditioned);
  }
  bool widened() const { return widened_; }

 private:
  bool widened_ = false;
};

}  // namespace

DrawnData::DrawnData(std::vector<SampleInput> inputs, const Target& target, Index size, Index classes)
    : inputs_(std::move(inputs)), size_(size), classes_(target.labels ? classes : 0) {
  for (int d = 1; d < target.shape.dims(); ++d) target_.push_back({target.shape.name(d), target.shape.extent(d)});
}

void DrawnData::read_input(int input, Index sample, const Box& box, std::span<double> out) const {
  const auto& [name, shape, vocabulary] = inputs_[input];
  const Random random(7, inputs_.size() == 1 ? 1 : hash_text(name));
  for_places(sample, shape, box, [&, words = static_cast<std::uint32_t>(vocabulary)](std::size_t i, Index at) {
    out[i] = words == 0 ? random.normal(at) : static_cast<double>(random.bits(at) % words);
  });
}

void DrawnData::read_target(Index sample, const Box& box, std::span<double> out) const {
  for_places(sample, target_, box, [&](std::size_t i, Index at) { out[i] = Random(7, 2).normal(at); });
}

void DrawnData::read_labels(Index sample, const Box& box, std::span<std::int32_t> out) const {
  for_places(sample, target_, box, [&](std::size_t i, Index at) {
    out[i] = static_cast<std::int32_t>(Random(7, 2).bits(at) % static_cast<std::uint32_t>(classes_));
  });
}

/// The number of tokens that an embedding or tables know, or of segments that we give to attention.
static Index vocabulary_of(const Operator& op, const Shape& tokens) {
  const auto weights = op.weights(std::array{tokens});
  return weights.empty() ? 3 : weights[0].shape['V'];
}

std::vector<SampleInput> inputs_of(const Model& model) {
  std::vector<SampleInput> inputs;
  for (const int input : model.inputs()) {
    const Shape one = model.shapes(1)[input];
    SampleInput& made = inputs.emplace_back();
    made.name = model.layers()[input].name;
    for (int d = 1; d < one.dims(); ++d) made.shape.push_back({one.name(d), one.extent(d)});
    if (!model.layers()[input].op->integers()) continue;
    made.vocabulary = 1 << 30;
    for (const Layer& layer : model.layers())
      if (std::find(layer.inputs.begin(), layer.inputs.end(), input) != layer.inputs.end())
        made.vocabulary = std::min(made.vocabulary, vocabulary_of(*layer.op, one));
  }
  return inputs;
}

DrawnData data_of(const Model& model, Index samples) {
  const Shape scores = model.shapes(1)[model.layers().back().inputs[0]];
  std::vector<SampleInput> inputs = inputs_of(model);
  std::reverse(inputs.begin(), inputs.end());
  return {std::move(inputs), model.layers().back().op->target(scores), samples, scores['C']};
}

Batch batch_of(const Model& model, const Executor& executor, const std::function<double(int input, Index i)>& image,
               const std::function<double(Index i)>& label) {
  const auto whole = [](double value, Index numbers) {
    return numbers == 0 ? value : static_cast<double>(static_cast<Index>(value) % numbers);
  };
  Batch batch;
  const std::vector<SampleInput> inputs = inputs_of(model);
  for (int i = 0; i < std::ssize(inputs); ++i) {
    const Shape& shape = executor.plan().layers[executor.inputs()[i]]->shape;
    const Index words = inputs[i].vocabulary;
    batch.images.emplace_back(words > 0 ? DType::i32 : DType::f64, shape.names(), executor.images(0, i));
    fill(batch.images.back(), shape, [&](Index at) { return whole(image(i, at), words); });
  }
  const Target target = executor.target();
  const Index classes = target.labels ? executor.plan().layers.back()->input_shapes[0]['C'] : 0;
  batch.target = Tensor(classes > 0 ? DType::i32 : DType::f64, target.shape.names(), executor.target_box());
  fill(batch.target, target.shape, [&](Index at) { return whole(label(at), classes); });
  return batch;
}

Workload workload_of(const RandomCase& drawn) {
  return {.batch = drawn.batch, .dtype = DType::f64, .training = true, .optimizer = drawn.optimizer};
}

RankResult run_rank(const RandomCase& drawn, const Strategy& strategy, Communicator& comm, bool overlap,
                    Weights weights, Outputs outputs, const ProcessorOf& processor) {
  DrawnData data = data_of(drawn.model, steps * drawn.batch);
  TrainerOptions options;
  options.batch = drawn.batch;
  options.dtype = DType::f64;
  options.seed = 3;
  options.overlap = overlap;
  options.check_replicas = 1;
  options.optimizer = workload_of(drawn).optimizer;
  Trainer trainer(drawn.model, strategy, options, comm,
                  processor ? processor(comm) : cpu_processor(comm, make_backend("reference", DType::f64, 1)));
  const auto here = [](const Tensor& tensor) { return on_host(tensor, tensor.stream()); };
  Executor& executor = TrainerParts::executor(trainer, drawn.batch, true);
  executor.keep_outputs(outputs == Outputs::kept);
  draw_biases(trainer);
  if (weights == Weights::nudged) nudge_weights(trainer);
  RankResult result;
  for (Index step = 0; step < steps; ++step) {
    std::vector<Index> samples;
    for (Index n = 0; n < drawn.batch; ++n) samples.push_back(step * drawn.batch + n);
    const StepResult step_result = trainer.step(data, samples);
    result.losses.push_back(step_result.loss);
    result.norms.push_back(step_result.gradient_norm);
  }
  for (std::size_t i = 0; i < drawn.model.layers().size(); ++i) {
    result.outputs.push_back(here(executor.output(i)));
    for (const auto& dw : TrainerParts::parameters(trainer).layer(i).gradient)
      result.gradients[fmt::format("gradient {} of layer {}",
                                   &dw - TrainerParts::parameters(trainer).layer(i).gradient.data(), i)] = here(dw);
  }
  result.counted = trainer.counter().by_label();
  result.memory = trainer.peak_memory();
  result.predicted = trainer.predicted_memory();
  trainer.counter().set_label("checkpoint");  // gathering a sharded optimizer state is not part of a step
  result.weights = TrainerParts::parameters(trainer).named(trainer.plan(), TrainerParts::gradient_grid(trainer), true);
  for (auto& each : result.weights) each.tensor.local = here(each.tensor.local);
  const EpochReport evaluated = trainer.evaluate(data, {});
  result.evaluation = evaluated.loss;
  if (evaluated.counts.classes() > 0) {
    EXPECT_NEAR(evaluated.counts.accuracy(), evaluated.accuracy, 1e-12) << "every position counts once";
  }
  trainer.check_replicas();
  EXPECT_TRUE(trainer.predicted() == trainer.measured())
      << "predicted and measured traffic differ, including the evaluation, on rank " << comm.rank();
  return result;
}

double difference(const Tensor& part, const Tensor& whole, double scale) {
  if (part.volume() == 0) return 0;
  double most = 0;
  const Tensor same = extract(whole, part.box(), MemoryClass::workspace, {});
  for (Index i = 0; i < part.volume(); ++i) {
    const double error = std::abs(part.get(i) - same.get(i));
    if (!(error <= most)) most = error;  // NaN counts as large
  }
  return most / std::max(largest(whole), scale);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.box() == b.box() && std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0;
}

SerialResult run_serially(const RandomCase& drawn) {
  SerialResult serial;
  Strategy one;  // with the same microbatches, since batch normalization computes its statistics per microbatch
  if (drawn.strategy.microbatches() > 1) one.schedule("gpipe", drawn.strategy.microbatches());
  run_threads(1, [&](Communicator& comm) { serial.run = run_rank(drawn, one, comm, true); });
  run_threads(1, [&](Communicator& comm) { serial.nudged = run_rank(drawn, one, comm, true, Weights::nudged); });
  return serial;
}

bool expect_near_serial(const RandomCase& drawn, const RankResult& rank, const SerialResult& both) {
  const RankResult &serial = both.run, &nudged = both.nudged;
  Bound bound;
  const auto expect_near = [&](double value, double expected, double moved, const std::string& what) {
    EXPECT_NEAR(value, expected, bound(1e-9 * std::max(1.0, std::abs(expected)), std::abs(moved - expected))) << what;
  };
  const auto expect_same = [&](const Tensor& part, const Tensor& whole, const Tensor& moved, double scale,
                               const std::string& what) {
    EXPECT_LT(difference(part, whole, scale), bound(1e-8, difference(moved, whole, scale))) << what;
  };
  for (std::size_t i = 0; i < serial.losses.size(); ++i)
    expect_near(rank.losses[i], serial.losses[i], nudged.losses[i], fmt::format("loss of step {}", i));
  for (std::size_t i = 0; i < serial.norms.size(); ++i) {
    if (i == 0) {
      EXPECT_EQ(serial.norms[i] > 0, serial.losses[i] != 0) << "only where no label counts there is no gradient";
    }
    expect_near(rank.norms[i], serial.norms[i], nudged.norms[i], fmt::format("norm of the gradients of step {}", i));
  }
  if (std::isnan(serial.evaluation))  // no label counts
    EXPECT_TRUE(std::isnan(rank.evaluation));
  else
    expect_near(rank.evaluation, serial.evaluation, nudged.evaluation, "evaluation");
  // A gradient that is zero except for rounding (of a bias before a normalization) is compared with the largest
  // gradient of the model, not with itself.
  double scale = 1e-3;
  for (const auto& [name, gradient] : serial.gradients) scale = std::max(scale, largest(gradient));
  const Plan plan = bind(drawn.model, drawn.strategy, workload_of(drawn));
  for (std::size_t i = 0; i + 1 < serial.outputs.size(); ++i)  // without the output of the loss, compared above
    if (plan.layers[i]->y.partial() == 0 && rank.outputs[i])   // not a part of a sum, nor of another stage
      expect_same(rank.outputs[i], serial.outputs[i], nudged.outputs[i], 1e-3,
                  "output of " + drawn.model.layers()[i].name);
  std::map<std::string, std::size_t> place;  // by name, since the optimizer state comes in the order of buckets
  for (std::size_t i = 0; i < serial.weights.size(); ++i) place[serial.weights[i].name] = i;
  if (drawn.strategy.groups().empty() && drawn.strategy.stage_count() == 1) {
    EXPECT_EQ(rank.weights.size(), place.size());
  }
  for (const auto& [name, tensor] : rank.weights) {
    const std::size_t i = place.at(name);
    expect_same(tensor.local, serial.weights[i].tensor.local, nudged.weights[i].tensor.local, scale, name);
  }
  // With a sharded optimizer a rank has the gradient sum of its own shard only.
  const bool whole = drawn.strategy.optimizer_state() == Strategy::OptimizerState::replicated;
  for (const auto& [name, gradient] : rank.gradients)
    if (whole) expect_same(gradient, serial.gradients.at(name), nudged.gradients.at(name), scale, name);
  return bound.widened();
}

void expect_predicted_memory(const Plan& plan, int rank, const RankResult& result) {
  const MemoryPeak peak = peak_memory(plan, rank);
  for (const auto kept : {MemoryClass::weights, MemoryClass::gradients, MemoryClass::optimizer,
                          MemoryClass::activations, MemoryClass::halos})
    EXPECT_EQ(peak.each[kept], result.memory.each[kept]) << name(kept) << " of rank " << rank;
  EXPECT_GE(result.memory.each[MemoryClass::workspace], peak.each[MemoryClass::workspace]);
  EXPECT_EQ(result.predicted.each[MemoryClass::workspace], result.memory.each[MemoryClass::workspace])
      << "workspace of rank " << rank;
  EXPECT_EQ(result.predicted.total, result.memory.total) << "total of rank " << rank;
}

void expect_predicted(const Plan& plan, int rank, const RankResult& result) {
  std::map<std::pair<std::string, Verb>, Traffic> predicted;
  for (int layer = 0; layer < static_cast<int>(plan.layers.size()); ++layer)
    for (const auto& item : layer_traffic(plan, layer, rank))
      for (int step = 0; step < steps; ++step)
        predicted[{plan.layers[layer].name + " " + item.role, item.verb}] += item.traffic;
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

}  // namespace partita::test
