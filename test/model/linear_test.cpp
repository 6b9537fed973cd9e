// A linear layer takes the best of all its algorithms: those that it skips, because of a lower bound on the cost of the
// gradients' products, could not have been the best. On grids of 1 to 8 ranks, with uneven, prime and tiny extents.
#include "src/model/linear_layouts.hpp"
#include "test/support/grids.hpp"

#include <gtest/gtest.h>

#include <random>

namespace partita::test::linear_test {
namespace {

/// A request for x with these extents, with arriving and output layouts drawn from all possible ones.
LayoutRequest drawn_request(const Grid& grid, const Shape& x, Index features, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&](const Shape& shape) {
    const auto all = all_layouts(shape, grid);
    return all[random() % all.size()];
  };
  LayoutRequest request;
  request.arriving = {draw(x)};
  request.input = {std::nullopt};
  request.output = draw({{'N', x['N']}, {'C', features}});
  request.needs_dx = seed % 3 > 0;
  return request;
}

std::string text_of(const OperatorLayouts& at) {
  std::string text = fmt::format("x {} y {} w {}", at.x[0].print(), at.y.print(), at.w[0].print());
  for (const auto& product : at.products) text += fmt::format(", {}", name(product.algorithm));
  return text;
}

void expect_best(const Grid& grid, const Shape& x, Index features, std::uint64_t seed) {
  const LinearOperator op({.features = features});
  const LayoutRequest request = drawn_request(grid, x, features, seed);
  EXPECT_EQ(text_of(op.layouts(request)), text_of(LinearLayouts(op).best(request, LinearLayouts::Ways::all)))
      << fmt::format("{} to {} features on \"{}\", {} to {}", x.print(), features, grid.print(),
                     request.arriving[0].print(), request.output.print());
}

TEST(LinearLayer, NoWayThatIsLeftOutIsCheaper) {
  for (const Grid& grid : grids())
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      const std::vector<Index> extents{1, 2, 3, 7, 13, 64, 200, 1031};
      // Combines each N with each C and with each number of features.
      const auto extent = [&](std::uint64_t by) {
        return extents[(seed * by + seed / extents.size()) % extents.size()];
      };
      expect_best(grid, {{'N', extent(1)}, {'C', extent(2)}}, extent(4), seed);
      if (grid.size() <= 4) expect_best(grid, {{'N', extent(1)}, {'C', extent(2)}, {'H', 5}}, extent(4), seed);
    }
}

}  // namespace
}  // namespace partita::test::linear_test
