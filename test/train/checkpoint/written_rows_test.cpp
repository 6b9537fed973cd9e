// Which rows of a tensor a rank writes, and how it gets them.
#include "src/train/checkpoint/written_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace partita::test::written_rows_test {
namespace {

/// Each element is written by one rank, which has it or receives it once, and what is received is sent.
void expect_each_once(const Layout& layout) {
  const Box all(layout.shape());
  Index written = 0;
  for (int rank = 0; rank < layout.grid().size(); ++rank) {
    const RowsExchange mine = rows_exchange(layout, rank, 4);
    Index found = 0;
    if (mine.rows) {
      written += mine.rows->volume();
      found = intersect(layout.owned(rank), *mine.rows).volume();
      for (int d = 1; d < all.dims(); ++d) EXPECT_EQ((*mine.rows)[d], all[d]) << "rows are contiguous in a file";
    }
    for (const auto& [peer, box] : mine.transfer.recvs) {
      found += box.volume();
      const auto& sends = rows_exchange(layout, peer, 4).transfer.sends;
      EXPECT_NE(std::find(sends.begin(), sends.end(), Transfer{rank, box}), sends.end()) << peer << " to " << rank;
      EXPECT_EQ(intersect(layout.owned(peer), box), box);
    }
    for (const auto& [peer, box] : mine.transfer.sends) {
      const auto& receives = rows_exchange(layout, peer, 4).transfer.recvs;
      EXPECT_NE(std::find(receives.begin(), receives.end(), Transfer{rank, box}), receives.end());
    }
    EXPECT_EQ(found, mine.rows ? mine.rows->volume() : 0) << layout.print() << " rank " << rank;
  }
  EXPECT_EQ(written, all.volume()) << layout.print();
}

TEST(WrittenRows, HaveEachElementOnce) {
  const Index usual = std::exchange(least_written_bytes, 8);
  const Grid grid = Grid::parse("a=2 b=3");
  for (const Shape& shape :
       {Shape{{'F', 7}, {'C', 5}}, Shape{{'F', 1}, {'C', 11}}, Shape{{'F', 0}, {'C', 4}}, Shape{{'F', 13}, {'C', 2}}})
    for (const char* layout : {"", "F@a", "F@b", "C@b", "F@(b,a)", "F@a C@b", "C@(a,b)"})
      expect_each_once(Layout::parse(layout, shape, grid));
  expect_each_once(Layout::parse("", Shape{}, grid));
  least_written_bytes = usual;
}

TEST(WrittenRows, ReplicasShareThem) {
  const Layout layout = Layout::parse("", Shape{{'F', 64}, {'C', 4096}}, Grid::parse("data=4"));
  for (int rank = 0; rank < 4; ++rank) {
    const RowsExchange mine = rows_exchange(layout, rank, 4);
    ASSERT_TRUE(mine.rows);
    EXPECT_EQ((*mine.rows)[0], (Interval{16 * rank, 16 * rank + 16}));
    EXPECT_TRUE(mine.transfer.sends.empty() && mine.transfer.recvs.empty());
    EXPECT_EQ(elements_to_write(layout, rank, 4, true), 16 * 4096);
  }
}

TEST(WrittenRows, SmallTensorsHaveOneWriter) {
  const Layout layout = Layout::parse("F@x", Shape{{'F', 10}}, Grid::parse("x=4"));
  EXPECT_EQ(written_rows(layout, 0, 4), Box(layout.shape()));
  for (const int rank : {1, 2, 3}) EXPECT_EQ(written_rows(layout, rank, 4), std::nullopt);
  EXPECT_EQ(elements_to_write(layout, 0, 4, false), 10);
}

TEST(WrittenRows, OfOneRankNeedNoRoom) {
  const Layout layout = Layout::parse("", Shape{{'F', 1000}, {'C', 100}}, Grid());
  EXPECT_EQ(elements_to_write(layout, 0, 4, true), 0);
}

}  // namespace
}  // namespace partita::test::written_rows_test
