// Kept keys and values give what a whole forward pass gives: the same scores at each place, under every layout. Memory
// and messages are those that were predicted.
#include "partita/train/trainer/generator.hpp"
#include "partita/comm/thread_ranks.hpp"
#include "partita/train/kernels/custom_layer.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/support/error_of.hpp"
#include "test/support/lazy_backend.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

namespace partita::test::generator_test {
namespace {

constexpr Index places = 7, tokens = 11, sequences = 3;

/// The parts in which decoders differ.
struct Parts {
  Index heads = 6, groups = 0;
  bool rotary = false, mean_square = false, gated = false, tied = false, segments = false;
};

Model decoder(const Parts& parts) {
  const Index hidden = 12, dim = 2, groups = parts.groups == 0 ? parts.heads : parts.groups;
  Model m("decoder");
  const auto norm = [&](const std::string& name, const Value& x) {
    return parts.mean_square ? m.rms_norm(name, x) : m.layer_norm(name, x, {.per_place = true});
  };
  const auto linear = [&](const std::string& name, const Value& x, Index features) {
    return m.linear(name, x, {.features = features, .per_place = true, .deviation = 0.5});
  };
  Value t = m.input("tokens", {.length = places, .tokens = true});
  std::optional<Value> segments;
  if (parts.segments) segments = m.input("segments", {.length = places, .tokens = true});
  t = m.embedding("embedding", t, {.vocabulary = tokens, .features = hidden, .deviation = 1});
  if (!parts.rotary) t = m.positions("positions", t, {.deviation = 1});
  for (const std::string i : {"1", "2"}) {
    Value u = linear("qkv" + i, norm("before" + i, t), (parts.heads + 2 * groups) * dim);
    if (parts.rotary) u = m.rotary("rotary" + i, u, {.heads = parts.heads, .groups = parts.groups});
    const Attention attention{.heads = parts.heads, .groups = parts.groups, .causal = true, .dropout = 0.5};
    const std::string name = "attention" + i;
    u = segments ? m.attention(name, u, *segments, attention) : m.attention(name, u, attention);
    t = m.add("sum" + i, t, linear("out" + i, u, hidden));
    u = linear("up" + i, norm("between" + i, t), 8);
    u = parts.gated ? m.gated("gate" + i, u) : m.gelu("gelu" + i, u);
    t = m.add("total" + i, t, linear("down" + i, u, hidden));
  }
  t = norm("norm", t);
  m.softmax_cross_entropy(
      "loss", parts.tied ? m.linear("scores", t, {.features = tokens, .per_place = true, .tied_to = "embedding"})
                         : linear("scores", t, tokens));
  return m;
}

std::int32_t token_at(Index sequence, Index place) {
  return static_cast<std::int32_t>((5 * sequence + 3 * place + place * place) % tokens);
}

TrainerOptions evaluation(DType dtype = DType::f64) {
  TrainerOptions options;
  options.batch = sequences;
  options.dtype = dtype;
  options.training = false;
  return options;
}

using Scores = std::vector<std::vector<std::vector<double>>>;  // by sequence, place and token

/// The scores of a whole forward pass on one rank.
Scores whole_pass(const Model& model) {
  Scores scores(sequences, std::vector<std::vector<double>>(places, std::vector<double>(tokens)));
  run_thread_ranks(1, {}, [&](Communicator& world) {
    Trainer trainer(model, Strategy(), evaluation(), world);
    const LocalBatch batch = trainer.make_batch(sequences, false);
    batch.fill_images([&](Index sequence, const Box& box, std::span<double> values) {
      for (Index l = box[1].lo; l < box[1].hi; ++l) values[l - box[1].lo] = token_at(sequence, l);
    });
    for (const auto& block : trainer.predict(batch))
      block.read([&](Index sequence, const Box&, std::span<const double> values) {
        for (Index c = 0; c < tokens; ++c)
          for (Index l = 0; l < places; ++l) scores[sequence][l][c] = values[c * places + l];
      });
  });
  return scores;
}

/// Runs passes of so many places, and compares the scores of their last places with those of a whole pass.
void compare(const Model& model, const Strategy& strategy, const std::vector<Index>& passes, const Scores& whole,
             Communicator& world, Processor processor, std::mutex& mutex, std::vector<Index>& asked) {
  Generator generator(model, strategy, evaluation(), world, std::move(processor), places);
  for (int again = 0; again < 2; ++again, generator.restart())
    for (const Index count : passes) {
      const Index done = generator.places_done();
      std::vector<std::int32_t> next;
      for (Index n = 0; n < sequences; ++n)
        for (Index l = 0; l < count; ++l) next.push_back(token_at(n, done + l));
      const auto chosen = generator.next(next, [&](Index sequence, std::span<const double> scores) {
        const std::scoped_lock lock(mutex);
        ++asked[sequence];
        EXPECT_EQ(std::ssize(scores), tokens);
        for (std::size_t c = 0; c < scores.size(); ++c)
          EXPECT_NEAR(scores[c], whole[sequence][done + count - 1][c], 1e-9)
              << "token " << c << " after place " << done + count - 1 << " of sequence " << sequence;
        return token_at(sequence, done + count);
      });
      for (Index n = 0; n < sequences; ++n) EXPECT_EQ(chosen[n], token_at(n, done + count));
    }
  const Trainer& trainer = generator.trainer();
  EXPECT_EQ(trainer.measured(), trainer.predicted()) << "on rank " << world.rank();
  EXPECT_EQ(trainer.peak_memory(), trainer.predicted_memory()) << "on rank " << world.rank();
  EXPECT_EQ(generator.kept_bytes(), kept_memory(trainer.plan(), world.rank(), places));
}

// Two layers keep a key and a value of two channels for each group.
TEST(Generator, KeepsWhatItsRankNeeds) {
  const auto kept_by = [](const Parts& parts, const Strategy& strategy) {
    std::vector<Index> bytes(static_cast<std::size_t>(strategy.ranks()));
    run_thread_ranks(strategy.ranks(), {}, [&](Communicator& world) {
      const Generator generator(decoder(parts), strategy, evaluation(DType::bf16), world,
                                cpu_processor(world, make_backend("auto", DType::bf16, 1)), 5);
      bytes[static_cast<std::size_t>(world.rank())] = generator.kept_bytes();
    });
    return bytes;
  };
  const Index of_group = Index{2} * sequences * 5 * 4 * 2;
  EXPECT_EQ(kept_by({}, Strategy()), (std::vector<Index>{6 * of_group}));
  EXPECT_EQ(kept_by({.groups = 2}, Strategy()), (std::vector<Index>{2 * of_group}));
  Strategy heads("t=2");
  heads.layer("qkv*", {.output = "C@t"}).layer("attention*", {.output = "C@t"});
  EXPECT_EQ(kept_by({.groups = 2}, heads), (std::vector<Index>{of_group, of_group}));
  EXPECT_EQ(kept_by({.groups = 3}, heads), (std::vector<Index>{3 * of_group, 3 * of_group}));
  Strategy samples("a=2");
  samples.layer("*", {.output = "N@a"});
  EXPECT_EQ(kept_by({.groups = 3}, samples), (std::vector<Index>{2 * of_group, of_group}));
}

const std::vector<std::vector<Index>> all_passes{{1, 1, 1, 1, 1, 1, 1}, {4, 1, 1, 1}, {2, 3, 1, 1}, {7}};

void expect_equal(const Model& model, const Strategy& strategy, const Scores& whole) {
  SCOPED_TRACE(strategy.print());
  for (const auto& passes : all_passes) {
    std::mutex mutex;
    std::vector<Index> asked(sequences, 0);
    run_thread_ranks(strategy.ranks(), {}, [&](Communicator& world) {
      compare(model, strategy, passes, whole, world, cpu_processor(world, make_backend("auto", DType::f64, 1)), mutex,
              asked);
    });
    EXPECT_EQ(asked, std::vector<Index>(sequences, 2 * std::ssize(passes)));  // one rank chooses
    LazyDevice device(static_cast<unsigned>(passes.size()));
    run_threads(strategy.ranks(), [&](Communicator& threads) {
      compare(model, strategy, passes, whole, threads, lazy_processor(threads, device), mutex, asked);
    });
    device.check();
  }
}

void expect_equal(const Model& model, const Strategy& strategy) { expect_equal(model, strategy, whole_pass(model)); }

std::vector<Model> models() {
  return {decoder({}), decoder({.rotary = true, .mean_square = true, .gated = true}),
          decoder({.heads = 6, .groups = 2, .rotary = true}),
          decoder({.heads = 6, .groups = 3, .mean_square = true, .tied = true})};
}

TEST(Generator, ContinuesAsAWholePassOnOneRank) {
  for (const Model& model : models()) expect_equal(model, Strategy());
}

TEST(Generator, ContinuesAsAWholePassWithCutSequences) {
  for (const int ranks : {2, 4}) {
    Strategy strategy(fmt::format("a={}", ranks));
    strategy.layer("*", {.output = "N@a"});
    for (const Model& model : models()) expect_equal(model, strategy);
  }
}

// Where a cut would go through a group, all ranks compute all groups.
TEST(Generator, ContinuesAsAWholePassWithCutHeadsAndTables) {
  for (const int ranks : {2, 3, 4}) {
    Strategy strategy(fmt::format("t={}", ranks));
    for (const char* cut : {"qkv*", "attention*", "up*", "scores"}) strategy.layer(cut, {.output = "C@t"});
    strategy.layer("embedding", {.weights = "V@t"});
    for (const Model& model : models()) expect_equal(model, strategy);
  }
}

TEST(Generator, ContinuesAsAWholePassWithCutPlaces) {
  for (const int ranks : {2, 3}) {
    Strategy strategy(fmt::format("t={}", ranks));
    strategy.layer("*", {.output = "L@t"}).layer("qkv*", {.output = "C@t"}).layer("up*", {.output = "C@t"});
    for (const Model& model : models()) expect_equal(model, strategy);
    // Kept keys and values do not travel: here each rank has those of all groups.
    Strategy ring(fmt::format("t={}", ranks));
    ring.layer("*", {.output = "L@t"}).layer("attention*", {.output = "L@t", .algorithm = "ring"});
    expect_equal(decoder({.heads = 6, .groups = 3}), ring);
  }
}

// A pass over places has no segments, but a strategy of the training may name them, and layers behind them by value.
TEST(Generator, TakesRulesOfTheSegmentsThatAPassLacks) {
  const Model model = decoder({.segments = true});
  for (const char* match : {"segments", "seg*"}) {
    Strategy strategy("t=2");
    strategy.layer(match, {.output = "N@t"}).layer(model.value("segments"), {.output = "N@t"});
    strategy.layer(model.value("qkv1"), {.output = "C@t"}).layer("attention1", {.output = "C@t"});
    expect_equal(model, strategy, whole_pass(decoder({})));
  }
  Strategy wrong("t=2");
  wrong.layer("segment", {.output = "N@t"});
  expect_error(
      [&] {
        run_thread_ranks(2, {}, [&](Communicator& world) {
          const Generator generator(model, wrong, evaluation(), world,
                                    cpu_processor(world, make_backend("auto", DType::f64, 1)), places);
        });
      },
      {"match = \"segment\" matches no layer of the model"});
}

TEST(Generator, ContinuesAsAWholePassOnStages) {
  for (const char* kind : {"gpipe", "1f1b", "chimera"})
    for (const int microbatches : {2, 4}) {
      Strategy strategy;
      strategy.group({"tokens", "sum1", Grid::parse("t=2")}).group({"between1", "loss", Grid::parse("t=2")});
      for (const char* cut : {"qkv*", "attention*", "up*"}) strategy.layer(cut, {.output = "C@t"});
      strategy.schedule(kind, microbatches);
      for (const bool tied : {false, true}) expect_equal(decoder({.tied = tied}), strategy);
    }
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Generator, RefusesWhatItCannotContinue) {
  const auto refused = [](const Model& model, Index length) {
    return message_of([&] {
      run_thread_ranks(1, {}, [&](Communicator& world) {
        Generator(model, Strategy(), evaluation(), world, cpu_processor(world, make_backend("auto", DType::f64, 1)),
                  length);
      });
    });
  };
  EXPECT_NE(refused(decoder({}), places + 1).find("a pass over 8 places of the model 'decoder'; it has 1 to 7"),
            std::string::npos);
  Model images("images");
  images.softmax_cross_entropy("loss", images.linear("fc", images.input("image", {.channels = 3}), {.features = 2}));
  EXPECT_NE(refused(images, 1).find("the model 'images' reads no sequences of tokens"), std::string::npos);
  Model both("both");
  Value t = both.embedding("e", both.input("tokens", {.length = places, .tokens = true}),
                           {.vocabulary = tokens, .features = 6});
  both.softmax_cross_entropy("loss", both.attention("sees_all", t, {.heads = 1}));
  EXPECT_NE(refused(both, 1).find("layer 'sees_all' (attention) computes a place of its output from other places"),
            std::string::npos);
}

TEST(Generator, RefusesTokensAndPlacesThatTheModelDoesNotHave) {
  run_thread_ranks(1, {}, [&](Communicator& world) {
    Generator generator(decoder({}), Strategy(), evaluation(), world,
                        cpu_processor(world, make_backend("auto", DType::f64, 1)), 3);
    const auto next = [&](const std::vector<std::int32_t>& given) {
      return message_of([&] { generator.next(given, [](Index, std::span<const double>) { return 0; }); });
    };
    EXPECT_EQ(next({0, 0, tokens}), "a token is 11, but the model knows the tokens 0 to 10");
    EXPECT_EQ(next({0, 0, -1}), "a token is -1, but the model knows the tokens 0 to 10");
    EXPECT_EQ(next({}), "0 tokens for 3 sequences; give each equally many, and one or more");
    EXPECT_EQ(next({1, 2, 3, 4}), "4 tokens for 3 sequences; give each equally many, and one or more");
    EXPECT_EQ(next({1, 2, 3, 4, 5, 6}), "");
    EXPECT_EQ(next({1, 2, 3, 4, 5, 6}), "2 more places after 2, but this generator was made for 3");
    EXPECT_EQ(next({1, 2, 3}), "");
  });
}

TEST(Sampling, TakesTheLargestScoreOrDraws) {
  const std::vector<double> scores{1, 3, 2, 3};
  EXPECT_EQ(choose_token({}, 0, 0, scores), 1);
  EXPECT_EQ(choose_token({.temperature = 1, .most = 1}, 0, 0, scores), 1);
  constexpr Index draws = 20000;
  for (const Index most : {0, 3, 2}) {
    std::vector<double> share(scores.size(), 0), expected(scores.size(), 0);
    for (Index i = 0; i < draws; ++i)
      share[choose_token({.temperature = 2, .most = most, .seed = 5}, i % 3, i, scores)] += 1.0 / draws;
    double total = 0;
    for (const std::size_t c : std::vector<std::size_t>{1, 3, 2, 0})
      if (c == 1 || c == 3 || (c == 2 && most != 2) || most == 0) total += expected[c] = std::exp(scores[c] / 2);
    for (std::size_t c = 0; c < scores.size(); ++c) {
      EXPECT_NEAR(share[c], expected[c] / total, 0.015) << "token " << c << " of " << most;
      EXPECT_EQ(share[c] == 0, expected[c] == 0);
    }
  }
  EXPECT_NE(choose_token({.temperature = 9, .seed = 1}, 0, 0, std::vector<double>(1000, 0)),
            choose_token({.temperature = 9, .seed = 2}, 0, 0, std::vector<double>(1000, 0)));
}

}  // namespace
}  // namespace partita::test::generator_test
