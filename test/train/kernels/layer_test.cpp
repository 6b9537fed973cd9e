// Compares layers whose outputs no other test checks with their definitions, written as loops over one rank's tensors.
// (The master test compares partitioned runs with one rank, the gradient test compares gradients with differences.)
#include "partita/base/philox.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "test/support/master.hpp"

namespace partita::test::layer_test {
namespace {

constexpr Index samples = 2, channels = 6, height = 3, width = 2;

/// Returns the outputs of all layers of `model` for normally distributed images. The scale of channel c is 1 + c/10,
/// its shift c/5. Labels count through the classes; values are normal. Also returns the weights of layer 1 and the loss
/// if requested.
std::vector<Tensor> outputs_of(const Model& model, std::vector<Tensor>* weights = nullptr, double* loss = nullptr,
                               const Strategy& strategy = {}) {
  std::vector<Tensor> outputs;
  run_threads(1, [&](Communicator& comm) {
    TrainerOptions options;
    options.check_replicas = 1;
    options.batch = samples;
    options.dtype = DType::f64;
    options.backend = "reference";
    Trainer trainer(model, strategy, options, comm);
    for (std::size_t i = 0; i < model.layers().size(); ++i)
      for (std::size_t j = 0; j < trainer.plan().layers[i]->weights.size(); ++j) {
        const auto& spec = trainer.plan().layers[i]->weights[j];
        const bool scale = spec.name == "scale";
        if (!scale && spec.name != "shift") continue;
        fill(TrainerParts::parameters(trainer).layer(i).master[j].local, spec.shape,
             [&](Index c) { return scale ? 1 + 0.1 * static_cast<double>(c) : 0.2 * static_cast<double>(c); });
      }
    Executor& executor = TrainerParts::executor(trainer, samples, true);
    executor.keep_outputs(true);
    const bool labels = executor.target().labels;
    const Batch batch = batch_of(
        model, executor,
        [&](int input, Index i) {
          const bool tokens = model.layers()[model.inputs()[input]].op->integers();
          return tokens ? static_cast<double>(5 * i) : Random(6, 1).normal(i) + 3;
        },
        [&](Index i) { return labels ? static_cast<double>(i) : Random(6, 2).normal(i); });
    if (weights != nullptr)
      for (const auto& w : TrainerParts::parameters(trainer).layer(1).master)
        weights->push_back(extract(w.local, w.local.box(), MemoryClass::workspace, {}));
    const StepResult result = executor.run(batch, 0, 1e-300);
    if (loss != nullptr) *loss = result.loss;
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

constexpr Index length = 5;
Value begin_sequence(Model& m, Index features) { return m.input("in", {.channels = features, .length = length}); }

TEST(Layers, LinearPerPlaceIsItsDefinition) {
  constexpr Index features = 5;
  for (const bool bias : {true, false}) {
    Model m("linear");
    end(m, m.linear("places", begin_sequence(m, channels), {.features = features, .bias = bias, .per_place = true}));
    std::vector<Tensor> weights;
    const auto outputs = outputs_of(m, &weights);
    const Tensor &x = outputs[0], &y = outputs[1];
    ASSERT_EQ(y.names(), "NCL");
    for (Index n = 0; n < samples; ++n)
      for (Index f = 0; f < features; ++f)
        for (Index l = 0; l < length; ++l) {
          double sum = bias ? weights[1].at({f}) : 0;
          for (Index c = 0; c < channels; ++c) sum += weights[0].at({f, c}) * x.at({n, c, l});
          EXPECT_NEAR(y.at({n, f, l}), sum, 1e-12);
        }
  }
}

TEST(Layers, GroupedLinearPerPlaceIsItsDefinition) {
  constexpr Index features = 4;
  for (const Index groups : {1, 2})
    for (const bool bias : {true, false}) {
      Model m("linear");
      end(m, m.linear("places", begin_sequence(m, channels),
                      {.features = features, .bias = bias, .per_place = true, .groups = groups}));
      std::vector<Tensor> weights;
      const auto outputs = outputs_of(m, &weights);
      const Index of_x = channels / groups, of_y = features / groups;
      ASSERT_EQ(weights[0].extent('C'), of_x);
      for (Index n = 0; n < samples; ++n)
        for (Index f = 0; f < features; ++f)
          for (Index l = 0; l < length; ++l) {
            double sum = bias ? weights[1].at({f}) : 0;
            for (Index c = 0; c < of_x; ++c) sum += weights[0].at({f, c}) * outputs[0].at({n, f / of_y * of_x + c, l});
            EXPECT_NEAR(outputs[1].at({n, f, l}), sum, 1e-12);
          }
    }
}

// Two experts that change nothing: what returns is each place times its gate, or nothing.
TEST(Layers, ExpertsTakeTheFirstPlacesThatChooseThem) {
  constexpr Index features = 3, slots = 3;  // of five places, 1 * 5 / 2 rounded up
  const Experts experts{.experts = 2, .capacity = 1};
  Model m("experts");
  const Value in = begin_sequence(m, features);
  const Value scores = m.linear("scores", in, {.features = 2, .per_place = true, .deviation = 1});
  const Value sent = m.dispatch("sent", in, scores, experts);
  end(m, m.combine("back", scores, sent, experts));
  const auto outputs = outputs_of(m);
  const Tensor &x = outputs[0], &s = outputs[1], &y = outputs[2], &z = outputs[3];
  ASSERT_EQ(y.extent('C'), 2 * features);
  ASSERT_EQ(y.extent('L'), slots);
  Index dropped = 0;
  for (Index n = 0; n < samples; ++n) {
    std::array<Index, 2> taken{};
    for (Index l = 0; l < length; ++l) {
      const Index e = s.at({n, 1, l}) > s.at({n, 0, l}) ? 1 : 0, slot = taken[e]++;
      if (slot >= slots) ++dropped;
      const double gate = 1 / (1 + std::exp(s.at({n, 1 - e, l}) - s.at({n, e, l})));
      for (Index c = 0; c < features; ++c) {
        if (slot < slots) {
          EXPECT_EQ(y.at({n, e * features + c, slot}), x.at({n, c, l}));
        }
        EXPECT_NEAR(z.at({n, c, l}), slot < slots ? gate * x.at({n, c, l}) : 0, 1e-12);
      }
    }
    for (Index e = 0; e < 2; ++e)
      for (Index slot = taken[e]; slot < slots; ++slot) EXPECT_EQ(y.at({n, e * features, slot}), 0);
  }
  EXPECT_GT(dropped, 0) << "the test has no place that is dropped";
}

TEST(Layers, NormsPerPlaceAreTheirDefinition) {
  for (const bool centered : {true, false}) {
    Model m("norm");
    const Value in = begin_sequence(m, channels);
    end(m, centered ? m.layer_norm("norm", in, {.epsilon = 0.01, .per_place = true})
                    : m.rms_norm("norm", in, {.epsilon = 0.01}));
    const auto outputs = outputs_of(m);
    const Tensor &x = outputs[0], &y = outputs[1];
    for (Index n = 0; n < samples; ++n)
      for (Index l = 0; l < length; ++l) {
        double mean = 0, variance = 0;
        for (Index c = 0; centered && c < channels; ++c) mean += x.at({n, c, l}) / channels;
        for (Index c = 0; c < channels; ++c) variance += std::pow(x.at({n, c, l}) - mean, 2) / channels;
        for (Index c = 0; c < channels; ++c) {
          const double normal = (x.at({n, c, l}) - mean) / std::sqrt(variance + 0.01);
          const auto i = static_cast<double>(c);
          EXPECT_NEAR(y.at({n, c, l}), (1 + 0.1 * i) * normal + (centered ? 0.2 * i : 0), 1e-12);
        }
      }
  }
}

TEST(Layers, EmbeddingTakesTheRowsOfItsTable) {
  Model m("embedding");
  const Value tokens = m.input("tokens", {.length = length, .tokens = true});
  end(m, m.embedding("embedding", tokens, {.vocabulary = vocabulary, .features = 3}));
  std::vector<Tensor> weights;
  const auto outputs = outputs_of(m, &weights);
  for (Index n = 0; n < samples; ++n)
    for (Index l = 0; l < length; ++l)
      for (Index c = 0; c < 3; ++c) {
        const auto token = static_cast<Index>(outputs[0].at({n, 0, l}));
        EXPECT_EQ(outputs[1].at({n, c, l}), weights[0].at({token, c}));
      }
}

TEST(Layers, TablesAddTheRowsOfABag) {
  constexpr Index bag = 3, rows = 4, features = 2;
  for (const bool mean : {false, true}) {
    Model m("tables");
    const Value indices = m.input("indices", {.channels = bag, .length = length, .tokens = true});
    end(m, m.tables("tables", indices, {.rows = rows, .features = features, .mean = mean}));
    std::vector<Tensor> weights;
    const auto outputs = outputs_of(m, &weights);
    for (Index n = 0; n < samples; ++n)
      for (Index l = 0; l < length; ++l)
        for (Index c = 0; c < features; ++c) {
          double sum = 0;
          for (Index p = 0; p < bag; ++p)
            sum += weights[0].at({static_cast<Index>(outputs[0].at({n, p, l})), c, l}) / (mean ? bag : 1);
          EXPECT_NEAR(outputs[1].at({n, c, l}), sum, 1e-15);
        }
  }
}

// Each input is read by its own layer, whatever their order.
TEST(Layers, InteractionMultipliesAllPairsOfVectors) {
  constexpr Index places = 4, features = 3;
  Model m("interaction");
  const Value vectors = m.input("vectors", {.channels = features, .length = places});
  const Value dense = m.input("dense", {.channels = features});
  end(m, m.interaction("interaction", vectors, dense));
  const auto outputs = outputs_of(m);
  ASSERT_EQ(outputs[2].extent('C'), features + 10);
  for (Index n = 0; n < samples; ++n) {
    const auto z = [&](Index i, Index c) { return i == 0 ? outputs[1].at({n, c}) : outputs[0].at({n, c, i - 1}); };
    Index pair = 0;
    for (Index c = 0; c < features; ++c) EXPECT_EQ(outputs[2].at({n, c}), z(0, c));
    for (Index i = 1; i <= places; ++i)
      for (Index j = 0; j < i; ++j) {
        double sum = 0;
        for (Index c = 0; c < features; ++c) sum += z(i, c) * z(j, c);
        EXPECT_NEAR(outputs[2].at({n, features + pair++}), sum, 1e-12);
      }
  }
}

TEST(Layers, PositionsAddTheRowOfEachPlace) {
  for (const Index places : {Index{0}, length, length + 2}) {  // of the table
    Model m("positions");
    end(m, m.positions("positions", begin_sequence(m, channels), {.places = places}));
    std::vector<Tensor> weights;
    const auto outputs = outputs_of(m, &weights);
    EXPECT_EQ(weights[0].extent('L'), places == 0 ? length : places);
    for (Index n = 0; n < samples; ++n)
      for (Index l = 0; l < length; ++l)
        for (Index c = 0; c < channels; ++c)
          EXPECT_NEAR(outputs[1].at({n, c, l}), outputs[0].at({n, c, l}) + weights[0].at({c, l}), 1e-15);
  }
}

TEST(Layers, GatedMultipliesPairsOfChannels) {
  Model m("gated");
  end(m, m.gated("gated", begin_sequence(m, channels)));
  const auto outputs = outputs_of(m);
  for (Index n = 0; n < samples; ++n)
    for (Index l = 0; l < length; ++l)
      for (Index c = 0; c < channels / 2; ++c) {
        const double gate = outputs[0].at({n, 2 * c, l});
        EXPECT_NEAR(outputs[1].at({n, c, l}), gate / (1 + std::exp(-gate)) * outputs[0].at({n, 2 * c + 1, l}), 1e-12);
      }
}

// Two groups, each of a query, a key and a value with 4 channels: queries and keys are turned.
TEST(Layers, RotaryTurnsPairsByTheirPlace) {
  Model m("rotary");
  end(m, m.rotary("rotary", begin_sequence(m, 24), {.heads = 2, .base = 100}));
  const auto outputs = outputs_of(m);
  for (Index n = 0; n < samples; ++n)
    for (Index l = 0; l < length; ++l)
      for (Index c = 0; c < 24; ++c) {
        const Index head = c / 4, i = c % 2, first = 4 * head + i;
        const double angle = static_cast<double>(l) * (i == 0 ? 1 : 0.1);  // 100^(-2i/4)
        const double a = outputs[0].at({n, first, l}), b = outputs[0].at({n, first + 2, l});
        const double turned =
            c % 4 < 2 ? a * std::cos(angle) - b * std::sin(angle) : a * std::sin(angle) + b * std::cos(angle);
        EXPECT_NEAR(outputs[1].at({n, c, l}), head % 3 == 2 ? outputs[0].at({n, c, l}) : turned, 1e-12);
      }
}

// Which weights are left out does not depend on whether they are kept.
TEST(Layers, WholeAttentionLeavesOutWhatBlocksLeaveOut) {
  const auto attended = [](double dropout, Algorithm algorithm) {
    Model m("attention");
    end(m, m.attention("attention", begin_sequence(m, 24), {.heads = 4, .groups = 2, .dropout = dropout}));
    return outputs_of(m, nullptr, nullptr, Strategy().layer("attention", {.algorithm = algorithm}))[1];
  };
  const Tensor blocks = attended(0.5, Algorithm::automatic), whole = attended(0.5, Algorithm::whole),
               all = attended(0, Algorithm::whole);
  EXPECT_LT(difference(whole, blocks, 1), 1e-12);
  EXPECT_GT(difference(whole, all, 1), 0.01);
}

// Two groups of two heads of queries, one of keys and one of values, with 3 channels each.
TEST(Layers, AttentionIsItsDefinition) {
  constexpr Index dim = 3, step = 4 * dim;
  for (const auto& [causal, algorithm] : {std::pair(true, Algorithm::automatic),
                                          {false, Algorithm::automatic},
                                          {true, Algorithm::whole},
                                          {false, Algorithm::whole}}) {
    SCOPED_TRACE(fmt::format("{} {}", causal, name(algorithm)));
    Model m("attention");
    end(m, m.attention("attention", begin_sequence(m, 2 * step), {.heads = 4, .groups = 2, .causal = causal}));
    const auto outputs = outputs_of(m, nullptr, nullptr, Strategy().layer("attention", {.algorithm = algorithm}));
    const Tensor &x = outputs[0], &y = outputs[1];
    for (Index n = 0; n < samples; ++n)
      for (Index head = 0; head < 4; ++head)
        for (Index l = 0; l < length; ++l) {
          const Index group = head / 2 * step, query = group + head % 2 * dim, key = group + 2 * dim;
          std::vector<double> weights;
          double sum = 0;
          for (Index other = 0; other < (causal ? l + 1 : length); ++other) {
            double product = 0;
            for (Index i = 0; i < dim; ++i) product += x.at({n, query + i, l}) * x.at({n, key + i, other});
            weights.push_back(std::exp(product / std::sqrt(3)));
            sum += weights.back();
          }
          for (Index i = 0; i < dim; ++i) {
            double mean = 0;
            for (Index other = 0; other < std::ssize(weights); ++other)
              mean += weights[other] / sum * x.at({n, key + dim + i, other});
            EXPECT_NEAR(y.at({n, head * dim + i, l}), mean, 1e-12);
          }
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

/// The weight of input i for output o in linear interpolation between positions.
double linear_weight(Index o, Index i, Index scale, Index n) {
  const double at =
      std::clamp((static_cast<double>(o) + 0.5) / static_cast<double>(scale) - 0.5, 0.0, static_cast<double>(n - 1));
  return std::max(0.0, 1 - std::abs(at - static_cast<double>(i)));
}

TEST(Layers, UpsampleLinearIsItsDefinition) {
  for (const Index scale : {1, 2, 3, 5}) {
    Model m("up");
    end(m, m.upsample("up", begin(m), {.scale = {scale, 2}, .interpolation = Interpolation::linear}));
    const auto outputs = outputs_of(m);
    for (Index h = 0; h < scale * height; ++h)
      for (Index w = 0; w < 2 * width; ++w) {
        double sum = 0;
        for_places([&](Index i, Index j) {
          sum += linear_weight(h, i, scale, height) * linear_weight(w, j, 2, width) * outputs[0].at({1, 4, i, j});
        });
        EXPECT_NEAR(outputs[1].at({1, 4, h, w}), sum, 1e-14);
      }
  }
}

TEST(Layers, UpsampleNearestRepeats) {
  Model m("up");
  end(m, m.upsample("up", begin(m), {.scale = {2, 3}}));
  const auto outputs = outputs_of(m);
  for (Index h = 0; h < 2 * height; ++h)
    for (Index w = 0; w < 3 * width; ++w) EXPECT_EQ(outputs[1].at({0, 3, h, w}), outputs[0].at({0, 3, h / 2, w / 3}));
}

TEST(Layers, CropTakesMarginsOff) {
  Model m("crop");
  end(m, m.crop("crop", begin(m), {{1, 0}, {0, 1}}));
  const auto outputs = outputs_of(m);
  ASSERT_EQ(outputs[1].extent('H'), height - 1);
  ASSERT_EQ(outputs[1].extent('W'), width - 1);
  for (Index h = 0; h < height - 1; ++h) EXPECT_EQ(outputs[1].at({1, 2, h, 0}), outputs[0].at({1, 2, h + 1, 0}));
}

TEST(Layers, SpaceToDepthOrdersChannelsBeforePlaces) {
  Model m("s2d");
  end(m, m.space_to_depth("s2d", begin(m), {3, 2}));
  const auto outputs = outputs_of(m);
  ASSERT_EQ(outputs[1].extent('C'), channels * 6);
  for (Index c = 0; c < channels; ++c)
    for_places([&](Index h, Index w) {
      EXPECT_EQ(outputs[1].at({1, c * 6 + h * 2 + w, 0, 0}), outputs[0].at({1, c, h, w}));
    });
}

/// y += x w over all positions that the window of an input reaches.
TEST(Layers, ConvTransposeIsItsDefinition) {
  const Window slide_h{.kernel = 3, .stride = 2, .dilation = 1, .pad_lo = 1, .pad_hi = 0};
  const Window slide_w{.kernel = 2, .stride = 3, .dilation = 2, .pad_lo = 0, .pad_hi = 1};
  constexpr Index groups = 2, filters = 4, more_h = 1, more_w = 2;
  Model m("transposed");
  end(m, m.conv_transpose("up", begin(m),
                          {.filters = filters,
                           .kernel = {3, 2},
                           .stride = {2, 3},
                           .padding = {{1, 0}, {0, 1}},
                           .output_padding = {more_h, more_w},
                           .dilation = {1, 2},
                           .groups = groups}));
  std::vector<Tensor> weights;
  const auto outputs = outputs_of(m, &weights);
  const Tensor &x = outputs[0], &y = outputs[1], &w = weights[0];
  ASSERT_EQ(y.extent('H'), (height - 1) * 2 - 1 + 3 + more_h);
  ASSERT_EQ(y.extent('W'), (width - 1) * 3 - 1 + 3 + more_w);
  for (Index n = 0; n < samples; ++n)
    for (Index f = 0; f < filters; ++f)
      for (Index oh = 0; oh < y.extent('H'); ++oh)
        for (Index ow = 0; ow < y.extent('W'); ++ow) {
          const Index group = f / (filters / groups);
          double sum = 0;
          for (Index c = group * channels / groups; c < (group + 1) * channels / groups; ++c)
            for_places([&](Index h, Index v) {
              for (Index i = 0; i < 3; ++i)
                for (Index j = 0; j < 2; ++j)
                  if (h * slide_h.stride - slide_h.pad_lo + i == oh &&
                      v * slide_w.stride - slide_w.pad_lo + j * slide_w.dilation == ow)
                    sum += x.at({n, c, h, v}) * w.at({c, f % (filters / groups), i, j});
            });
          EXPECT_NEAR(y.at({n, f, oh, ow}), sum + weights[1].at({f}), 1e-13);
        }
}

// Losses: the scores are the output of the model's last layer, labels and values as in `outputs_of`.

double softmax(const Tensor& x, Index n, Index c, Index h, Index w) {
  double sum = 0;
  for (Index k = 0; k < channels; ++k) sum += std::exp(x.at({n, k, h, w}));
  return std::exp(x.at({n, c, h, w})) / sum;
}

TEST(Losses, CrossEntropyIsTheMeanOverPlaces) {
  Model m("loss");
  m.softmax_cross_entropy("loss", m.conv("scores", begin(m), {.filters = channels}));
  double loss = 0, expected = 0;
  const auto outputs = outputs_of(m, nullptr, &loss);
  for (Index n = 0; n < samples; ++n)
    for_places([&](Index h, Index w) {
      const Index label = ((n * height + h) * width + w) % channels;
      expected -= std::log(softmax(outputs[1], n, label, h, w)) / (samples * height * width);
    });
  EXPECT_NEAR(loss, expected, 1e-13);
}

TEST(Losses, DiceIsItsDefinition) {
  Model m("loss");
  m.softmax_dice("loss", m.conv("scores", begin(m), {.filters = channels}));
  double loss = 0, expected = 0;
  const auto outputs = outputs_of(m, nullptr, &loss);
  for (Index n = 0; n < samples; ++n)
    for (Index c = 0; c < channels; ++c) {
      double common = 0, both = 0;
      for_places([&](Index h, Index w) {
        const double p = softmax(outputs[1], n, c, h, w);
        const double g = ((n * height + h) * width + w) % channels == c ? 1 : 0;
        common += p * g;
        both += p + g;
      });
      expected += (1 - (2 * common + 1) / (both + 1)) / (samples * channels);
    }
  EXPECT_NEAR(loss, expected, 1e-13);
}

TEST(Losses, DifferencesAreMeansOverElements) {
  for (const bool absolute : {false, true}) {
    Model m("loss");
    const Value t = m.conv("scores", begin(m), {.filters = 2});
    absolute ? m.mean_absolute_error("loss", t) : m.mean_squared_error("loss", t);
    double loss = 0, expected = 0;
    const auto outputs = outputs_of(m, nullptr, &loss);
    for (Index n = 0; n < samples; ++n)
      for (Index c = 0; c < 2; ++c)
        for_places([&](Index h, Index w) {
          const double target = Random(6, 2).normal(((n * 2 + c) * height + h) * width + w);
          const double difference = outputs[1].at({n, c, h, w}) - target;
          expected += (absolute ? std::abs(difference) : difference * difference) / (samples * 2 * height * width);
        });
    EXPECT_NEAR(loss, expected, 1e-13) << absolute;
  }
}

}  // namespace
}  // namespace partita::test::layer_test
