// Layers whose outputs no other test knows, against their definitions as loops over one rank's tensors. (That partitioned
// runs agree with one rank, and gradients with differences, is for the master and the gradient test.)
#include "partita/base/philox.hpp"
#include "partita/comm/threads.hpp"
#include "support/master.hpp"

namespace partita::test {
namespace {

constexpr Index samples = 2, channels = 6, height = 3, width = 2;

/// Outputs of all layers of `model` for images of normal numbers; a scale of channel c is 1 + c/10, a shift c/5.
std::vector<Tensor> outputs_of(const Model& model) {
  std::vector<Tensor> outputs;
  run_threads(1, [&](Communicator& comm) {
    TrainerOptions options;
    options.batch = samples;
    options.dtype = DType::f64;
    options.backend = "reference";
    Trainer trainer(model, Strategy(), options, std::shared_ptr<Communicator>(std::shared_ptr<void>(), &comm));
    for (std::size_t i = 0; i < model.layers().size(); ++i)
      for (std::size_t j = 0; j < trainer.plan().layers[i].weights.size(); ++j) {
        const auto& spec = trainer.plan().layers[i].weights[j];
        const bool scale = spec.name == "scale";
        if (!scale && spec.name != "shift") continue;
        fill(trainer.parameters().layer(i).master[j].local, spec.shape,
             [&](Index c) { return scale ? 1 + 0.1 * static_cast<double>(c) : 0.2 * static_cast<double>(c); });
      }
    Executor& executor = trainer.executor(samples, true);
    executor.keep_outputs(true);
    const Shape& shape = executor.plan().layers[0].shape;
    const Batch batch{Tensor(DType::f64, shape.names(), executor.images()),
                      Tensor(DType::i32, executor.target().shape.names(), executor.target_box())};
    fill(batch.images, shape, [](Index i) { return Random(6, 1).normal(i) + 3; });
    executor.run(batch, 0, 1e-300);
    for (std::size_t i = 0; i < model.layers().size(); ++i) outputs.push_back(executor.output(i));
  });
  return outputs;
}

Value begin(Model& m) { return m.input("in", {.channels = channels, .spatial = {height, width}}); }
void end(Model& m, Value t) { m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = 3})); }

template <class F>
void for_places(F&& f) {
  for (Index h = 0; h < height; ++h)
    for (Index w = 0; w < width; ++w) f(h, w);
}

TEST(Layers, GroupNormIsItsDefinition) {
  for (const Index groups : {1, 2, 3, 6}) {
    Model m("norm");
    end(m, m.group_norm("norm", begin(m), {.groups = groups, .epsilon = 0.01}));
    const auto outputs = outputs_of(m);
    const Tensor &x = outputs[0], &y = outputs[1];
    const Index size = channels / groups;
    const auto count = static_cast<double>(size * height * width);
    for (Index n = 0; n < samples; ++n)
      for (Index first = 0; first < channels; first += size) {
        double mean = 0, variance = 0;
        for (Index c = first; c < first + size; ++c)
          for_places([&](Index h, Index w) { mean += x.at({n, c, h, w}) / count; });
        for (Index c = first; c < first + size; ++c)
          for_places([&](Index h, Index w) { variance += std::pow(x.at({n, c, h, w}) - mean, 2) / count; });
        for (Index c = first; c < first + size; ++c)
          for_places([&](Index h, Index w) {
            const double normal = (x.at({n, c, h, w}) - mean) / std::sqrt(variance + 0.01);
            const auto i = static_cast<double>(c);
            EXPECT_NEAR(y.at({n, c, h, w}), (1 + 0.1 * i) * normal + 0.2 * i, 1e-12) << groups << " groups";
          });
      }
  }
}

TEST(Layers, ConcatenateKeepsTheOrderOfItsInputs) {
  Model m("concatenate");
  const Value x = begin(m);
  const Value twice = m.add("twice", x, x);
  end(m, m.concatenate("cat", {twice, x, twice}));
  const auto outputs = outputs_of(m);
  for (Index n = 0; n < samples; ++n)
    for (Index c = 0; c < 3 * channels; ++c)
      for_places([&](Index h, Index w) {
        const double factor = c / channels == 1 ? 1 : 2;
        EXPECT_EQ(outputs[2].at({n, c, h, w}), factor * outputs[0].at({n, c % channels, h, w}));
      });
}

TEST(Layers, GlobalAveragePoolIsTheMean) {
  Model m("mean");
  end(m, m.global_average_pool("mean", begin(m)));
  const auto outputs = outputs_of(m);
  for (Index n = 0; n < samples; ++n)
    for (Index c = 0; c < channels; ++c) {
      double mean = 0;
      for_places([&](Index h, Index w) { mean += outputs[0].at({n, c, h, w}) / (height * width); });
      EXPECT_NEAR(outputs[1].at({n, c}), mean, 1e-14);
    }
}

}  // namespace
}  // namespace partita::test
