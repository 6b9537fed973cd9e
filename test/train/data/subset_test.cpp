#include "src/train/data/subset.hpp"

#include "test/support/error_of.hpp"

#include <gtest/gtest.h>

#include <set>

namespace partita::test::subset_test {
namespace {

TEST(Division, CoversAllSamplesOnce) {
  for (const auto& [samples, fraction, held_out] :
       {std::tuple<Index, double, std::size_t>{100, 0.1, 10}, {7, 0.5, 4}, {2, 0.999, 1}, {1000, 1e-9, 1}}) {
    const Division parts = divide(samples, fraction, 3);
    EXPECT_EQ(parts.held_out.size(), held_out) << samples << " samples";
    std::set<Index> all(parts.training.begin(), parts.training.end());
    all.insert(parts.held_out.begin(), parts.held_out.end());
    EXPECT_EQ(static_cast<Index>(all.size()), samples) << "no sample is in both parts";
    EXPECT_EQ(static_cast<Index>(parts.training.size() + parts.held_out.size()), samples);
    EXPECT_EQ(*all.rbegin(), samples - 1);
  }
}

TEST(Division, DependsOnTheSeedAlone) {
  EXPECT_EQ(divide(100, 0.2, 5).held_out, divide(100, 0.2, 5).held_out);
  EXPECT_NE(divide(100, 0.2, 5).held_out, divide(100, 0.2, 6).held_out);
}

TEST(Division, RefusesWhatCannotBeDivided) {
  expect_error([] { divide(1, 0.5, 1); }, {"1 sample cannot be divided"});
  for (const double fraction : {0.0, 1.0, -0.5, 2.0})
    expect_error([&] { divide(10, fraction, 1); }, {"cannot be held out", "between 0 and 1"});
}

TEST(Subset, HasTheSamplesOfTheWhole) {
  const Shape sample{{'C', 1}, {'H', 3}, {'W', 2}};
  const auto whole = make_synthetic(sample, {}, 20, 4, 1, 0);
  const auto subset = make_subset(make_synthetic(sample, {}, 20, 4, 1, 0), {3, 11, 19});
  EXPECT_EQ(subset->size(), 3);
  EXPECT_EQ(subset->sample(), sample);
  EXPECT_EQ(subset->classes(), 4);
  const Box box(sample);
  std::vector<double> mine(6), theirs(6);
  std::vector<float> rounded(6), theirs_rounded(6);
  std::vector<std::int32_t> label(1);
  const std::vector<Index> all{0, 1, 2};
  subset->hold(all, box);
  subset->hold_targets(all, Box(0));
  for (const auto& [i, of_whole] : {std::pair<Index, Index>{0, 3}, {1, 11}, {2, 19}}) {
    subset->read(i, box, mine);
    whole->read(of_whole, box, theirs);
    EXPECT_EQ(mine, theirs) << "sample " << i;
    subset->read_f32(i, box, rounded);
    whole->read_f32(of_whole, box, theirs_rounded);
    EXPECT_EQ(rounded, theirs_rounded) << "sample " << i;
    EXPECT_EQ(subset->label(i), whole->label(of_whole));
    subset->read_labels(i, Box(0), label);
    EXPECT_EQ(label[0], whole->label(of_whole));
  }
}

}  // namespace
}  // namespace partita::test::subset_test
