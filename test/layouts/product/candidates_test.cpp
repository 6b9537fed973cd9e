// The chosen plan of a product costs no more than the plan of any single algorithm. The grids have 1 to 8 ranks; some
// extents are uneven, prime or zero.
#include "partita/base/error.hpp"
#include "partita/layouts/product/product.hpp"
#include "test/support/grids.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>

namespace partita::test {
namespace {

/// A product y = x w' with the given extents. The layouts are drawn from all possible ones.
struct Drawn {
  ProductOperand x, w, y;

  Drawn(const Grid& grid, Index n, Index f, Index c, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto draw = [&](const Shape& shape, bool sums) {
      auto all = all_layouts(shape, grid);
      if (!sums) std::erase_if(all, [](const Layout& layout) { return layout.partial() != 0; });
      return all[random() % all.size()];
    };
    x = {draw({{'N', n}, {'C', c}}, false), "mk"};
    w = {draw({{'F', f}, {'C', c}}, false), "nk"};
    y = {draw({{'N', n}, {'C', f}}, true), "mn"};
  }
  /// Returns the total cost of one algorithm, or nothing if the grid cannot run it.
  std::optional<double> total(Algorithm algorithm) const {
    try {
      return plan_product(x, w, y, {.algorithm = algorithm}).alternatives[0].total();
    } catch (const Error&) {
      return std::nullopt;
    }
  }
};

TEST(ProductWays, NoneIsCheaperThanWhatIsTaken) {
  std::map<std::optional<Algorithm>, int> taken;
  for (const Grid& grid : grids())
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      const std::vector<Index> extents{0, 1, 2, 3, 7, 13, 200};
      const auto extent = [&](std::uint64_t by) { return extents[(seed / by + seed) % extents.size()]; };
      const Drawn drawn(grid, extent(1), extent(3), extent(7), seed);
      const ProductPlan plan = plan_product(drawn.x, drawn.w, drawn.y);
      SCOPED_TRACE(fmt::format("{} on \"{}\", seed {}", name(plan.algorithm), grid.print(), seed));
      EXPECT_EQ(plan.alternatives[0].algorithm, plan.algorithm);
      for (const Algorithm algorithm : product_algorithms()) {
        const auto total = drawn.total(algorithm);
        EXPECT_TRUE(!total || plan.alternatives[0].total() <= *total) << name(algorithm);
      }
      ++taken[plan.algorithm];
    }
  EXPECT_GE(taken.size(), 4U);
}

}  // namespace
}  // namespace partita::test
