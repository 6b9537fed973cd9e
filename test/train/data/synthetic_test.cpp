#include "partita/base/error.hpp"
#include "partita/train/data/dataset.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace partita::synthetic_test {
namespace {

const Shape sample{{'C', 3}, {'H', 5}, {'W', 7}};

std::vector<float> read(const Dataset& data, Index i, const Box& box) {
  std::vector<float> pixels(static_cast<std::size_t>(box.volume()));
  data.read_f32(i, box, pixels);
  return pixels;
}

std::vector<float> read(const Dataset& data, Index i) { return read(data, i, Box(data.sample())); }

TEST(Synthetic, TellsWhatItIs) {
  const auto data = make_synthetic(sample, {}, 11, 4, 1, 0);
  EXPECT_EQ(data->sample(), sample);
  EXPECT_EQ(data->size(), 11);
  EXPECT_EQ(data->classes(), 4);
}

TEST(Synthetic, IsTheSameWhateverBoxIsAsked) {
  const auto data = make_synthetic(sample, {}, 11, 4, 1, 0);
  for (const Index i : {0, 6, 10}) {
    const auto whole = read(*data, i);
    for (Index c = 0; c <= 3; ++c)
      for (Index h = 0; h <= 5; ++h)
        for (Index w = 0; w <= 7; ++w) {
          Box box(sample);
          box[0].lo = c;
          box[1].hi = h;
          box[2] = {w / 2, w};
          const auto part = read(*data, i, box);
          auto next = part.begin();
          for (Index y = box[0].lo; y < box[0].hi; ++y)
            for (Index x = box[1].lo; x < box[1].hi; ++x)
              for (Index z = box[2].lo; z < box[2].hi; ++z) ASSERT_EQ(*next++, whole[(y * 5 + x) * 7 + z]);
        }
  }
}

TEST(Synthetic, DependsOnSeedPartAndSample) {
  const auto data = make_synthetic(sample, {}, 11, 4, 1, 0);
  EXPECT_EQ(read(*data, 3), read(*make_synthetic(sample, {}, 11, 4, 1, 0), 3));
  EXPECT_NE(read(*data, 3), read(*make_synthetic(sample, {}, 11, 4, 2, 0), 3));
  EXPECT_NE(read(*data, 3), read(*make_synthetic(sample, {}, 11, 4, 1, 1), 3));
  EXPECT_NE(read(*data, 3), read(*data, 4));
}

TEST(Synthetic, GrowingAddsSamplesOnly) {
  const auto small = make_synthetic(sample, {}, 5, 4, 1, 0), large = make_synthetic(sample, {}, 50, 4, 1, 0);
  for (Index i = 0; i < 5; ++i) {
    EXPECT_EQ(small->label(i), large->label(i));
    EXPECT_EQ(read(*small, i), read(*large, i));
  }
}

TEST(Synthetic, PixelsHaveUnitVariance) {
  const auto data = make_synthetic(sample, {}, 200, 20, 1, 0);
  double sum = 0, squares = 0;
  for (Index i = 0; i < 200; ++i)
    for (const float pixel : read(*data, i)) {
      sum += pixel;
      squares += static_cast<double>(pixel) * pixel;
    }
  const double n = 200.0 * 105;
  EXPECT_NEAR(sum / n, 0, 0.05);
  EXPECT_NEAR(squares / n, 1, 0.05);
}

TEST(Synthetic, EveryClassOccursAboutEquallyOften) {
  const auto data = make_synthetic(sample, {}, 3000, 3, 1, 0);
  std::array<int, 3> count{};
  for (Index i = 0; i < 3000; ++i) ++count.at(static_cast<std::size_t>(data->label(i)));
  for (const int n : count) EXPECT_NEAR(n, 1000, 120);
}

TEST(Synthetic, PartsShareThePatterns) {
  // The mean over many samples of a class in one part identifies that class in the other part.
  const auto training = make_synthetic(sample, {}, 400, 4, 1, 0), test = make_synthetic(sample, {}, 100, 4, 1, 1);
  std::array<std::vector<double>, 4> means;
  means.fill(std::vector<double>(105));
  for (Index i = 0; i < 400; ++i) {
    const auto pixels = read(*training, i);
    auto& mean = means.at(static_cast<std::size_t>(training->label(i)));
    for (std::size_t p = 0; p < pixels.size(); ++p) mean[p] += pixels[p];
  }
  int right = 0;
  for (Index i = 0; i < 100; ++i) {
    const auto pixels = read(*test, i);
    std::array<double, 4> score{};
    for (std::size_t c = 0; c < 4; ++c)
      for (std::size_t p = 0; p < pixels.size(); ++p) score[c] += means[c][p] * pixels[p];
    right += std::max_element(score.begin(), score.end()) - score.begin() == test->label(i) ? 1 : 0;
  }
  EXPECT_GE(right, 95);
}

TEST(Synthetic, RefusesImpossibleSizes) {
  EXPECT_THROW(make_synthetic(sample, {}, -1, 4, 1, 0), Error);
  EXPECT_THROW(make_synthetic(sample, {}, 5, 0, 1, 0), Error);
  EXPECT_THROW(make_synthetic({{'N', 2}, {'C', 1}}, {}, 5, 4, 1, 0), Error);
}

TEST(Synthetic, MayBeEmpty) { EXPECT_EQ(make_synthetic(sample, {}, 0, 1, 1, 0)->size(), 0); }

TEST(SyntheticDeathTest, WhatIsNotThereIsRefused) {
  const auto data = make_synthetic(sample, {}, 5, 4, 1, 0);
  EXPECT_DEATH(data->label(5), "the data set has the sample");
  EXPECT_DEATH(read(*data, -1), "the data set has the sample");
  Box box(sample);
  box[2].hi = 8;
  EXPECT_DEATH(read(*data, 0, box), "inside the sample");
}

TEST(Synthetic, PlacesShowTheirLabels) {
  const Shape places{{'H', 5}, {'W', 7}};
  const auto data = make_synthetic(sample, places, 200, 2, 1, 0);
  std::array<double, 2> sum{}, count{};
  std::vector<std::int32_t> labels(35);
  for (Index i = 0; i < 200; ++i) {
    data->read_labels(i, Box(places), labels);
    const auto pixels = read(*data, i);
    for (std::size_t p = 0; p < 35; ++p) {
      sum[labels[p]] += pixels[p];  // the first channel
      ++count[labels[p]];
    }
  }
  EXPECT_GT(count[0], 3000);
  EXPECT_GT(count[1], 3000);
  EXPECT_GT(std::abs(sum[0] / count[0] - sum[1] / count[1]), 0.1) << "classes have different means";
}

TEST(Synthetic, TargetsAreTheSameWhateverBoxIsAsked) {
  for (const auto& [shape, classes] : {std::pair{Shape{{'H', 5}, {'W', 7}}, 3}, {Shape{{'C', 4}}, 0}}) {
    const auto data = make_synthetic(sample, shape, 9, classes, 1, 0);
    const auto read = [&, labels = classes > 0](const Box& box) {
      std::vector<std::int32_t> whole_numbers(static_cast<std::size_t>(box.volume()));
      std::vector<double> values(whole_numbers.size());
      if (!labels) data->read_target(4, box, values);
      if (labels) data->read_labels(4, box, whole_numbers);
      if (labels) std::copy(whole_numbers.begin(), whole_numbers.end(), values.begin());
      return values;
    };
    const auto whole = read(Box(shape));
    Box box(shape);
    box[0] = {2, 4};
    const auto part = read(box);
    const auto row = shape.volume() / shape.extent(0);
    for (std::size_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], whole[static_cast<std::size_t>(2 * row) + i]);
  }
}

}  // namespace
}  // namespace partita::synthetic_test
