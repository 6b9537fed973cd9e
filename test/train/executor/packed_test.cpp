// Documents that are packed into samples, with and without padding behind them, get what each of them gets alone.
#include "src/comm/threads/threads.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "test/support/master.hpp"

#include <array>

namespace partita::test::packed_test {
namespace {

constexpr Index vocabulary = 11, ignored = 7;

/// Some places of a sample.
struct Document {
  Index sample, first, places;
};

/// A model of one block, whose weights do not depend on the number of places. Turned queries and keys know how far
/// places are from each other, and not where in a sample they are.
Model model_of(Index length, const Attention& attention, bool packed) {
  Model m;
  const Value tokens = m.input("tokens", {.length = length, .tokens = true});
  Value segments, x = m.embedding("embedding", tokens, {.vocabulary = vocabulary, .features = 6, .deviation = 1});
  if (packed) segments = m.input("segments", {.length = length, .tokens = true});
  const Index dim = 4, features = (attention.heads + 2 * attention.groups) * dim;
  x = m.linear("qkv", x, {.features = features, .per_place = true});
  x = m.rotary("rotary", x, {.heads = attention.heads, .groups = attention.groups});
  x = packed ? m.attention("attention", x, segments, attention) : m.attention("attention", x, attention);
  x = m.linear("scores", x, {.features = vocabulary, .per_place = true});
  m.softmax_cross_entropy("loss", x, {.ignored = ignored});
  return m;
}

Index token_of(Index document, Index place) { return (3 * document + place * place) % vocabulary; }
Index label_of(Index document, Index place) { return (document + 2 * place) % ignored; }  // is never ignored

/// What a rank computes.
struct Result {
  Tensor scores;
  std::vector<Tensor> gradients;
  double loss = 0;
  bool balanced = false;  // attention runs in a balanced ring
};

/// Runs a model, in which place `place` of sample `sample` is that of place_of(sample, place), {document, place}, or of
/// none, {-1, 0}: then its token is any, its label is ignored, and its segment is that of padding.
template <class PlaceOf>
Result run(const Model& model, const Strategy& strategy, Communicator& comm, Index samples, PlaceOf&& place_of) {
  TrainerOptions options;
  options.batch = samples;
  options.dtype = DType::f64;
  options.backend = "reference";
  Trainer trainer(model, strategy, options, comm);
  Executor& executor = TrainerParts::executor(trainer, samples, true);
  executor.keep_outputs(true);
  const Index length = model.shapes(1)[0]['L'];
  const auto document = [&](Index i) { return place_of(i / length, i % length); };
  Batch batch;
  for (int i = 0; i < std::ssize(executor.inputs()); ++i) {
    const LayerPlan& input = executor.plan().layers[executor.inputs()[i]];
    batch.images.emplace_back(DType::i32, input->shape.names(), executor.images(0, i));
    fill(batch.images.back(), input->shape, [&](Index at) {
      const auto [number, place] = document(at);
      return static_cast<double>(input.name == "segments" ? number + 1 : number < 0 ? at % 5 : token_of(number, place));
    });
  }
  batch.target = Tensor(DType::i32, "NL", executor.target_box());
  fill(batch.target, executor.target().shape, [&](Index at) {
    const auto [number, place] = document(at);
    return static_cast<double>(number < 0 ? ignored : label_of(number, place));
  });
  Result result;
  result.loss = executor.run(batch, 0, 1e-300).loss;
  const auto scores = model.layers().size() - 2;
  result.scores = executor.output(scores);
  for (std::size_t i = 0; i < model.layers().size(); ++i)
    for (const Tensor& dw : TrainerParts::parameters(trainer).layer(i).gradient) result.gradients.push_back(dw);
  for (const LayerPlan& layer : executor.plan().layers)
    result.balanced = result.balanced || (layer->at.ring && layer->at.ring->balanced);
  return result;
}

/// Compares documents in samples of `length` places with each of them alone.
void expect_as_alone(const std::vector<Document>& documents, Index samples, Index length, const Attention& attention,
                     const Strategy& strategy) {
  std::vector<Result> alone;
  double loss = 0, places = 0;
  for (std::size_t d = 0; d < documents.size(); ++d) {
    const auto place_of = [&](Index, Index place) { return std::array{static_cast<Index>(d), place}; };
    run_threads(1, [&](Communicator& comm) {
      alone.push_back(run(model_of(documents[d].places, attention, false), {}, comm, 1, place_of));
    });
    const auto weight = static_cast<double>(documents[d].places);
    loss += weight * alone.back().loss;
    places += weight;
  }
  const auto place_of = [&](Index sample, Index place) {
    for (std::size_t d = 0; d < documents.size(); ++d)
      if (const auto& [of, first, count] = documents[d]; of == sample && place >= first && place < first + count)
        return std::array{static_cast<Index>(d), place - first};
    return std::array<Index, 2>{-1, 0};
  };
  run_threads(strategy.grid().size(), [&](Communicator& comm) {
    const Result packed = run(model_of(length, attention, true), strategy, comm, samples, place_of);
    EXPECT_NEAR(packed.loss, loss / places, 1e-13);
    if (attention.groups == attention.heads) {
      EXPECT_EQ(packed.balanced,
                attention.causal && strategy.grid().size() >= 4 && strategy.rule_of("attention").algorithm == "ring");
    }
    const Box& box = packed.scores.box();
    for (Index n = box[0].lo; n < box[0].hi; ++n)
      for (Index l = box[2].lo; l < box[2].hi; ++l)
        for (Index c = box[1].lo; c < box[1].hi; ++c)
          if (const auto [number, place] = place_of(n, l); number >= 0) {
            ASSERT_NEAR(packed.scores.at({n, c, l}), alone[number].scores.at({0, c, place}), 1e-13);
          }
    if (strategy.grid().size() > 1) return;
    for (std::size_t w = 0; w < packed.gradients.size(); ++w)
      for (Index i = 0; i < packed.gradients[w].volume(); ++i) {
        double sum = 0;
        for (std::size_t d = 0; d < documents.size(); ++d)
          sum += static_cast<double>(documents[d].places) / places * alone[d].gradients[w].get(i);
        ASSERT_NEAR(packed.gradients[w].get(i), sum, 1e-13) << w;
      }
  });
}

std::vector<Strategy> strategies() {
  std::vector<Strategy> all;
  all.push_back(Strategy().layer("attention", {.algorithm = "whole"}));
  all.emplace_back();
  for (const char* algorithm : {"ring", "all-to-all", "whole"})
    all.push_back(Strategy("l=2").layer("*", {.output = "L@l"}).layer("attention", {.algorithm = algorithm}));
  for (const char* grid : {"l=4", "l=5"})
    all.push_back(Strategy(grid).layer("*", {.output = "L@l"}).layer("attention", {.algorithm = "ring"}));
  all.push_back(Strategy("n=2 h=2").layer("*", {.output = "N@n"}).layer("attention", {.output = "N@n C@h"}));
  return all;
}

/// Calls expect(attention, strategy) for all strategies. With as many groups as heads, a causal ring of four ranks or
/// more is balanced.
template <class F>
void for_strategies(F&& expect) {
  for (const Index groups : {2, 4})
    for (const bool causal : {true, false})
      for (const Strategy& strategy : strategies()) {
        SCOPED_TRACE(fmt::format("causal {}, {} groups\n{}", causal, groups, strategy.print()));
        expect(Attention{.heads = 4, .groups = groups, .causal = causal}, strategy);
      }
}

// Documents of one place, and some that end where a rank's places do.
TEST(Packed, DocumentsGetWhatEachGetsAlone) {
  for_strategies([](const Attention& attention, const Strategy& strategy) {
    expect_as_alone({{0, 0, 5}, {0, 5, 1}, {0, 6, 5}, {1, 0, 11}, {2, 0, 3}, {2, 3, 8}}, 3, 11, attention, strategy);
  });
}

// Padding behind a document and before it; a sample may be all padding.
TEST(Packed, PaddingChangesNothing) {
  for_strategies([](const Attention& attention, const Strategy& strategy) {
    expect_as_alone({{0, 0, 1}, {1, 0, 7}, {2, 3, 4}}, 4, 7, attention, strategy);
  });
}

}  // namespace
}  // namespace partita::test::packed_test
