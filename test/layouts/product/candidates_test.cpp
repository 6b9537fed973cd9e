// The chosen plan of a product costs no more than the plan of any single algorithm. The grids have 1 to 8 ranks; some
// extents are uneven, prime or zero.
#include "partita/base/error.hpp"
#include "partita/layouts/product/product.hpp"
#include "test/layouts/product/drawn.hpp"
#include "test/support/grids.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>

namespace partita::test::candidates_test {
namespace {

/// Returns the total cost of one algorithm, or nothing if the grid cannot run it.
std::optional<double> total(const Drawn& drawn, Algorithm algorithm) {
  try {
    return plan_product(drawn.x, drawn.w, drawn.y, {.algorithm = algorithm}).alternatives[0].total();
  } catch (const Error&) {
    return std::nullopt;
  }
}

TEST(ProductWays, NoneIsCheaperThanWhatIsTaken) {
  std::map<std::optional<Algorithm>, int> taken;
  for (const Grid& grid : grids())
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      const Drawn drawn(grid, seed);
      const ProductPlan plan = plan_product(drawn.x, drawn.w, drawn.y);
      SCOPED_TRACE(fmt::format("{} on \"{}\", seed {}", name(plan.algorithm), grid.print(), seed));
      EXPECT_EQ(plan.alternatives[0].algorithm, plan.algorithm);
      for (const Algorithm algorithm : product_algorithms()) {
        const auto alone = total(drawn, algorithm);
        EXPECT_TRUE(!alone || plan.alternatives[0].total() <= *alone) << name(algorithm);
      }
      ++taken[plan.algorithm];
    }
  EXPECT_GE(taken.size(), 4U);
}

}  // namespace
}  // namespace partita::test::candidates_test
