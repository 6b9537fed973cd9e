// Text as tokens: which bytes are samples, which are labels, and what is refused.
#include "partita/train/data/dataset.hpp"
#include "partita/train/trainer/trainer.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/support/error_of.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace partita::text_test {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

class Text : public testing::Test {
 protected:
  Text() : folder_(fs::path(testing::TempDir()) / fmt::format("partita-text-{}", getpid())) {
    fs::create_directories(folder_);
  }
  ~Text() override { fs::remove_all(folder_); }
  std::string file(const char* name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }

  fs::path folder_;
};

template <class T>
std::string as_text(const std::vector<T>& bytes) {
  std::string text;
  for (const T b : bytes) text += static_cast<char>(static_cast<unsigned char>(b));
  return text;
}

/// The tokens of places [lo, hi) of a sample, and their labels, as text.
std::string tokens(const Dataset& data, Index sample, Index lo, Index hi) {
  std::vector<double> values(static_cast<std::size_t>(hi - lo));
  Box box(2);
  box[0] = {0, 1};
  box[1] = {lo, hi};
  data.read(sample, box, values);
  return as_text(values);
}
std::string labels(const Dataset& data, Index sample, Index lo, Index hi) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(hi - lo));
  Box box(1);
  box[0] = {lo, hi};
  data.read_labels(sample, box, values);
  return as_text(values);
}

TEST_F(Text, EachLabelIsTheNextByte) {
  const auto data = open_text(file("t", "abcdefghijklmnopqrstuvwxyz0123"), 4, true);  // 27 bytes for training
  EXPECT_EQ(data->size(), 6);
  EXPECT_EQ(data->vocabulary(), 256);
  EXPECT_EQ(tokens(*data, 0, 0, 4), "abcd");
  EXPECT_EQ(labels(*data, 0, 0, 4), "bcde");
  EXPECT_EQ(tokens(*data, 5, 1, 3), "vw");
  EXPECT_EQ(labels(*data, 5, 1, 4), "wxy");
  const auto last = open_text((folder_ / "t").string(), 2, false);  // the last tenth: "123"
  EXPECT_EQ(last->size(), 1);
  EXPECT_EQ(tokens(*last, 0, 0, 2) + labels(*last, 0, 0, 2), "1223");
}

TEST_F(Text, AFolderHasTwoFiles) {
  file("training.txt", "abc");
  file("test.txt", std::string("\xFF\x00z", 3));
  EXPECT_EQ(tokens(*open_text(folder_.string(), 2, true), 0, 0, 2), "ab");
  EXPECT_EQ(tokens(*open_text(folder_.string(), 2, false), 0, 0, 2), std::string("\xFF\x00", 2));
  expect_error([&] { open_text(folder_.string(), 3, true); }, {"training.txt' has 3 bytes", "takes 3 and one more"});
  expect_error([&] { open_text((folder_ / "none").string(), 3, true); }, {"cannot open", "none"});
  const auto shortened = open_text(file("long", std::string(100, 'x')), 9, true);
  file("long", "x");
  expect_error([&] { tokens(*shortened, 1, 0, 9); }, {"cannot read", "at byte 9"});
}

TEST(SyntheticTokens, CountUpInRuns) {
  const auto data = make_synthetic_tokens(20, 7, 3, 1, 0);
  const std::string x = tokens(*data, 2, 0, 20), y = labels(*data, 2, 0, 20);
  EXPECT_EQ(x.substr(1), y.substr(0, 19));
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % 8 != 7) {
      EXPECT_EQ(y[i], (x[i] + 1) % 7) << i;
    }
  }
}

/// Says that it has 5 tokens, and has one more.
class Lying final : public Dataset {
 public:
  Shape sample() const override { return {{'C', 1}, {'L', 3}}; }
  Shape target() const override { return {{'L', 3}}; }
  Index size() const override { return 2; }
  Index classes() const override { return 5; }
  Index vocabulary() const override { return 5; }
  void hold(std::span<const Index>, const Box&) override {}
  void read(Index sample, const Box&, std::span<double> out) const override {
    std::fill(out.begin(), out.end(), sample == 1 ? 5 : 4);
  }
  void read_labels(Index, const Box&, std::span<std::int32_t> out) const override {
    std::fill(out.begin(), out.end(), 1);
  }
};

// 200 samples of 100 tokens: how many are guessed, and what is shown for them.
TEST(Tokens, AreHiddenToBeGuessed) {
  constexpr Index length = 100, samples = 200, vocabulary = 50;
  const auto made = [] { return make_synthetic_tokens(length, vocabulary, samples, 3, 0); };
  const auto plain = made();
  const auto masked = mask_tokens(made(), {.share = 0.15, .ignored = -7, .seed = 4});
  EXPECT_EQ(masked->vocabulary(), vocabulary + 1);
  EXPECT_EQ(masked->classes(), vocabulary + 1);
  EXPECT_EQ(masked->target().print(), plain->target().print());
  const auto read = [](const Dataset& data, Index sample, Interval places) {
    std::vector<double> values(static_cast<std::size_t>(places.extent()));
    Box box(2);
    box[0] = {0, 1};
    box[1] = places;
    data.read(sample, box, values);
    return values;
  };
  const auto labels_of = [&](Index sample, Interval places) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(places.extent()));
    Box box(1);
    box[0] = places;
    masked->read_labels(sample, box, values);
    return values;
  };
  double guessed = 0, hidden = 0, same = 0;
  for (Index n = 0; n < samples; ++n) {
    const auto tokens = read(*plain, n, {0, length}), shown = read(*masked, n, {0, length});
    const auto labels = labels_of(n, {0, length});
    EXPECT_EQ(read(*masked, n, {31, 40}), std::vector(shown.begin() + 31, shown.begin() + 40)) << "a part of a sample";
    EXPECT_EQ(labels_of(n, {31, 40}), std::vector(labels.begin() + 31, labels.begin() + 40));
    for (Index l = 0; l < length; ++l) {
      if (labels[l] == -7) {
        EXPECT_EQ(shown[l], tokens[l]) << "it is not guessed";
        continue;
      }
      EXPECT_EQ(labels[l], tokens[l]);
      ++guessed;
      hidden += shown[l] == vocabulary ? 1 : 0;
      same += shown[l] == tokens[l] ? 1 : 0;
    }
  }
  EXPECT_NEAR(guessed / (samples * length), 0.15, 0.01);
  EXPECT_NEAR(hidden / guessed, 0.8, 0.03);
  EXPECT_NEAR(same / guessed, 0.1 + 0.1 / vocabulary, 0.03);
  expect_error([&] { mask_tokens(made(), {.share = 0}); }, {"share of tokens to guess is 0"});
  expect_error([&] { mask_tokens(made(), {.ignored = 3}); }, {"the label 3", "is a token"});
  expect_error([] { mask_tokens(make_synthetic({{'C', 1}, {'H', 2}}, {}, 3, 2, 1, 0)); }, {"no sequences of tokens"});
}

// Synthetic tokens count up in runs of eight, so that some are separators, and some neighbors are.
TEST(Tokens, DocumentsAreNumberedBySeparators) {
  constexpr Index length = 40, vocabulary = 3;
  const auto made = [] { return make_synthetic_tokens(length, vocabulary, 20, 3, 0); };
  const auto plain = made();
  const auto documents = separate_documents(made(), 2);
  const auto masked = mask_tokens(separate_documents(made(), 2), {.share = 0.5});
  const auto read = [](const Dataset& data, int input, Index sample, Interval places) {
    std::vector<double> values(static_cast<std::size_t>(places.extent()));
    Box box(2);
    box[0] = {0, 1};
    box[1] = places;
    data.read_input(input, sample, box, values);
    return values;
  };
  for (const auto* data : {documents.get(), masked.get()}) {
    ASSERT_EQ(data->inputs().size(), 2);
    EXPECT_EQ(data->inputs()[0].vocabulary, data == masked.get() ? vocabulary + 1 : vocabulary);
    EXPECT_EQ(data->inputs()[1].name, "segments");
    EXPECT_EQ(data->inputs()[1].vocabulary, length);
    for (Index n = 0; n < 20; ++n) {
      const auto tokens = read(*plain, 0, n, {0, length}), numbers = read(*data, 1, n, {0, length});
      double number = 0;
      for (Index l = 0; l < length; ++l) {
        EXPECT_EQ(numbers[l], number) << l;
        number += tokens[l] == 2 ? 1 : 0;  // the separator is of its document
      }
      EXPECT_EQ(read(*data, 1, n, {31, 35}), std::vector(numbers.begin() + 31, numbers.begin() + 35)) << "a part";
      if (data == documents.get()) {
        EXPECT_EQ(read(*data, 0, n, {0, length}), tokens);
      }
    }
  }
  expect_error([&] { separate_documents(made(), 3); }, {"the separator 3 is no token", "the tokens 0 to 2"});
  expect_error([&] { separate_documents(made(), -1); }, {"the separator -1 is no token"});
  expect_error(
      [] {
        separate_documents(make_synthetic({{'C', 1}, {'H', 2}}, {}, 3, 2, 1, 0), 0);
      },
      {"no sequences of tokens, of which some could separate documents"});
}

TEST(Tokens, BeyondTheVocabularyAreRefusedByName) {
  Model m("tokens");
  const Value t = m.embedding("embedding", m.input("in", {.length = 3, .tokens = true}), {.vocabulary = 5});
  m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = 5, .per_place = true}));
  Lying data;
  data.set_name("lying");
  expect_error(
      [&] {
        run_threads(1, [&](Communicator& comm) {
          TrainerOptions options;
          options.batch = 2;
          Trainer trainer(m, Strategy(), options, comm);
          const std::vector<Index> both{0, 1};
          trainer.step(data, both);
        });
      },
      {"data set 'lying': sample 1 has the token 5", "vocabulary() is 5"});
}

}  // namespace
}  // namespace partita::text_test
