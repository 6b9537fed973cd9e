// The transfers between two stages are equal to those from lists of all ranks' blocks.
#include "partita/strategies/plan/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>

using namespace partita;

namespace {

/// Returns the transfer from lists of what each rank of both stages owns and needs.
TransferPlan listed(const Layout& have, const Layout& need, int rank) {
  const int ranks =
      std::max(have.grid().first_rank() + have.grid().size(), need.grid().first_rank() + need.grid().size());
  const auto blocks = [&](const Layout& layout) {
    std::vector<Box> all(static_cast<std::size_t>(ranks), Box(layout.shape().dims()));
    for (int r = 0; r < layout.grid().size(); ++r) all[layout.grid().first_rank() + r] = layout.owned(r);
    return all;
  };
  const std::vector<Box> owned = blocks(have), needed = blocks(need);
  return plan_transfer(owned, needed, rank, Grid::parse(fmt::format("rank={}", ranks)));
}

void expect_same(const std::vector<Transfer>& some, const std::vector<Transfer>& all, const std::string& what) {
  const auto same = [](const Transfer& a, const Transfer& b) { return a.peer == b.peer && a.box == b.box; };
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin(), all.end(), same)) << what;
}

TEST(StageBoundary, SendsWhatListsOfAllBlocksSay) {
  const Shape shape{{'N', 5}, {'C', 3}, {'H', 7}};
  const auto layouts = {"N C H", "N@a", "N@b C@a", "C@c H@(b,a)", "N@(a,b,c)", "H@b"};
  const Grid first = Grid::parse("a=2 b=3 c=2", 4), second = Grid::parse("c=4 a=2 b=2", 20);
  for (const char* from : layouts)
    for (const char* to : layouts) {
      const StageBoundary boundary{1, Layout::parse(from, shape, first), Layout::parse(to, shape, second), {}};
      for (const bool back : {false, true})
        for (int rank = 0; rank < second.first_rank() + second.size(); ++rank) {
          const TransferPlan some = boundary.transfer(rank, back);
          const TransferPlan all =
              back ? listed(boundary.to, boundary.from, rank) : listed(boundary.from, boundary.to, rank);
          const std::string what = fmt::format("rank {}, \"{}\" to \"{}\"{}", rank, from, to, back ? ", back" : "");
          expect_same(some.sends, all.sends, what);
          expect_same(some.recvs, all.recvs, what);
          EXPECT_TRUE(some.locals.empty() && all.locals.empty()) << what;
        }
    }
}

}  // namespace
