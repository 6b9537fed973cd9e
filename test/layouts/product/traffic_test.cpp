// What a product exchanges is what its panels exchange, one after the other: the transfers that are run. The grids have
// 1 to 8 ranks; some extents are uneven, prime or zero.
#include "test/layouts/product/drawn.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace partita::test::traffic_test {
namespace {

constexpr Index element_size = 4;

std::vector<PeerTraffic> traffic_of_panels(const ProductPlan& plan, int rank) {
  std::vector<PeerTraffic> peers;
  for (const auto& [operand, used] : {std::pair(&plan.a, &plan.a_used), std::pair(&plan.b, &plan.b_used)})
    for (const Interval slab : plan.slabs(*operand))
      add_peers(peers, plan.gather(*operand, *used, rank, slab), element_size);
  if (plan.sums_slabs)
    for (const Interval slab : plan.slabs(plan.c)) add_peers(peers, plan.sum(rank, slab), element_size, true);
  return peers;
}

TEST(ProductTraffic, IsThatOfItsPanels) {
  int moving = 0, most_panels = 0, in_place = 0, sums = 0, together = 0;
  for (const Grid& grid : grids())
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
      const Drawn drawn(grid, seed);
      const bool small = seed % 2 == 0;  // small panels
      const ProductPlan plan = plan_product(drawn.x, drawn.w, drawn.y,
                                            {.narrowest_slab = small ? 2 : 128, .panel_words = small ? 64.0 : 1 << 20});
      SCOPED_TRACE(fmt::format("{} on \"{}\", seed {}", name(plan.algorithm), grid.print(), seed));
      for (int rank = 0; rank < grid.size(); ++rank) {
        const auto expected = traffic_of_panels(plan, rank);
        EXPECT_EQ(plan.traffic(rank, element_size), expected) << "rank " << rank;
        moving += expected.empty() ? 0 : 1;
        for (const Interval slab : plan.slabs(plan.a))
          in_place += plan.gathered(plan.a, plan.a_used, rank, slab).empty() && plan.slabs(plan.a).size() > 1 ? 1 : 0;
      }
      sums += plan.sums_slabs ? 1 : 0;
      together += (plan.c_made.replicated() & (plan.a.layout.sharding() | plan.a_used.sharding())) != 0 ? 1 : 0;
      most_panels = std::max(most_panels, static_cast<int>(plan.panels.size()));
    }
  EXPECT_GT(moving, 3000);
  EXPECT_GT(in_place, 100);
  EXPECT_GT(sums, 100);
  EXPECT_GT(together, 100);
  EXPECT_EQ(most_panels, 8);
}

}  // namespace
}  // namespace partita::test::traffic_test
