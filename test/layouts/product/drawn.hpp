#pragma once

#include "partita/layouts/product/product.hpp"
#include "test/support/grids.hpp"

#include <random>

namespace partita::test {

/// A product y = x w'. Its extents, some of them uneven, prime or zero, and its layouts are drawn.
struct Drawn {
  ProductOperand x, w, y;

  Drawn(const Grid& grid, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto extent = [&, extents = std::vector<Index>{0, 1, 2, 3, 7, 13, 200}](std::uint64_t by) {
      return extents[(seed / by + seed) % extents.size()];
    };
    const Index n = extent(1), f = extent(3), c = extent(7);
    const auto draw = [&](const Shape& shape, bool sums) {
      auto all = all_layouts(shape, grid);
      if (!sums) std::erase_if(all, [](const Layout& layout) { return layout.partial() != 0; });
      return all[random() % all.size()];
    };
    x = {draw({{'N', n}, {'C', c}}, false), "mk"};
    w = {draw({{'F', f}, {'C', c}}, false), "nk"};
    y = {draw({{'N', n}, {'C', f}}, true), "mn"};
  }
};

}  // namespace partita::test
