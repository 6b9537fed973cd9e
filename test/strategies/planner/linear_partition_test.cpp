// minimize_max_segment() against exact dynamic programming.
#include "strategies/planner/linear_partition.hpp"

#include "test/support/cases.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <string>

namespace partita::test::linear_partition_test {

namespace {

/// The smallest largest sum of at most `parts` consecutive segments: best[p][n] of the first n costs in p segments.
double smallest_largest_sum(const std::vector<double>& costs, int parts) {
  std::vector<double> best(costs.size() + 1, std::numeric_limits<double>::infinity());
  best[0] = 0;
  for (int p = 0; p < parts; ++p) {
    std::vector<double> next = best;
    for (std::size_t end = 1; end <= costs.size(); ++end) {
      double sum = 0;
      for (std::size_t begin = end; begin-- > 0;) {
        sum += costs[begin];
        next[end] = std::min(next[end], std::max(best[begin], sum));
      }
    }
    best = next;
  }
  return best.back();
}

/// The largest sum of the segments that begin where `found` says.
double largest_sum(const std::vector<double>& costs, const Segments& found) {
  double largest = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= found.begins.size(); ++i) {
    const std::size_t end = i == found.begins.size() ? costs.size() : found.begins[i];
    const auto at = [&](std::size_t place) { return costs.begin() + static_cast<std::ptrdiff_t>(place); };
    largest = std::max(largest, std::accumulate(at(begin), at(end), 0.0));
    begin = end;
  }
  return largest;
}

/// At most `parts` segments, none empty, whose largest sum is within a thousandth of the smallest.
void expect_partition(const std::vector<double>& costs, int parts) {
  const std::string what = fmt::format("[{}] in {} parts", fmt::join(costs, " "), parts);
  const Segments found = minimize_max_segment(costs, parts);
  ASSERT_LT(static_cast<int>(found.begins.size()), parts) << what;
  std::size_t before = 0;
  for (const std::size_t begin : found.begins) {
    ASSERT_GT(begin, before) << what;
    ASSERT_LT(begin, costs.size()) << what;
    before = begin;
  }
  const double best = smallest_largest_sum(costs, parts), largest = largest_sum(costs, found);
  constexpr double tolerance = 1e-3, rounding = 1e-12;
  EXPECT_LE(largest, best * (1 + tolerance)) << what;
  EXPECT_GE(found.longest, largest * (1 - rounding)) << what << ": no segment exceeds what is said";
  EXPECT_LE(found.longest, best * (1 + tolerance)) << what;
}

}  // namespace

TEST(LinearPartition, CutsWhereTheLargestSumIsSmallest) {
  struct Case {
    std::vector<double> costs;
    int parts;
    std::vector<std::size_t> begins;
    double longest;
  };
  const std::vector<Case> table{{{7}, 1, {}, 7},           {{7}, 3, {}, 7},           {{1, 2, 3}, 1, {}, 6},
                                {{1, 1, 1, 1}, 2, {2}, 2}, {{1, 2, 3}, 3, {2}, 3},    {{9, 1, 1}, 2, {1}, 9},
                                {{1, 1, 9}, 2, {2}, 9},    {{1, 9, 1}, 3, {1, 2}, 9}, {{5, 5, 5}, 2, {2}, 10},
                                {{0, 0, 0}, 2, {}, 0}};
  for (const auto& [costs, parts, begins, longest] : table) {
    const std::string what = fmt::format("[{}] in {} parts", fmt::join(costs, " "), parts);
    const Segments found = minimize_max_segment(costs, parts);
    EXPECT_EQ(found.begins, begins) << what;
    EXPECT_NEAR(found.longest, longest, 1e-3 * longest) << what;
    expect_partition(costs, parts);
  }
}

TEST(LinearPartition, ComesWithinAThousandthOfTheBest) {
  for (std::uint64_t seed = 0; seed < cases(300); ++seed) {
    std::mt19937_64 random(seed);
    const auto uniform = [&] { return std::uniform_real_distribution<double>(0, 1)(random); };
    std::vector<double> costs(1 + random() % 13);
    for (double& cost : costs) cost = random() % 5 == 0 ? 0 : random() % 7 == 0 ? 100 * uniform() : uniform();
    for (const int parts : {1, 2, 3, 5, 7, static_cast<int>(costs.size()), static_cast<int>(costs.size()) + 2})
      expect_partition(costs, parts);
  }
}

// Seconds of layers lie between nanoseconds and minutes.
TEST(LinearPartition, TheUnitDoesNotMatter) {
  for (const double unit : {1e-9, 1e-3, 1.0, 1e6}) {
    std::vector<double> costs{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};
    for (double& cost : costs) cost *= unit;
    for (const int parts : {2, 3, 5}) expect_partition(costs, parts);
  }
}

}  // namespace partita::test::linear_partition_test
