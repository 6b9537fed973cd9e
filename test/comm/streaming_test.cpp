#include "../../src/comm/streaming.hpp"

#include <gtest/gtest.h>

#include <vector>

using namespace partita;

namespace {

using Choice = StreamingChoice;

/// Lets pieces that are stored either way take so long, and returns how many of `periods` periods' pieces were streamed.
Index streamed(Choice& choice, const std::atomic<bool>& shared, Index first_period, Index periods, double cached,
               double streaming) {
  Index count = 0;
  for (Index piece = first_period * Choice::period; piece < (first_period + periods) * Choice::period; ++piece) {
    const bool streams = Choice::streams(shared, piece);
    const Index bytes = 1000 + piece % 3 * 1000;  // only the time for each byte counts
    choice.add(piece, (streams ? streaming : cached) * static_cast<double>(bytes));
    choice.done(piece, bytes);
    count += streams ? 1 : 0;
  }
  return count;
}

TEST(Streaming, FollowsTheFasterWayAndTriesTheOtherOnceAPeriod) {
  if (!has_streaming_stores) GTEST_SKIP() << "this processor has no streaming stores";
  std::atomic<bool> shared{false};
  Choice choice(shared);
  EXPECT_EQ(streamed(choice, shared, 0, 4, 1, 1.5), 4);  // the trials
  EXPECT_FALSE(shared);
  EXPECT_EQ(streamed(choice, shared, 4, 1, 9, 1.5), Choice::period - Choice::trial);
  EXPECT_TRUE(shared);
  EXPECT_EQ(streamed(choice, shared, 5, 3, 9, 1.5), 3 * (Choice::period - 1));
  EXPECT_EQ(streamed(choice, shared, 8, 1, 1, 1.5), Choice::trial);
  EXPECT_FALSE(shared);
}

TEST(Streaming, CopiesAnyBytesToAnyPlace) {
  for (Index bytes = 0; bytes < 70; ++bytes)
    for (std::size_t to = 0; to < 17; ++to)
      for (const std::size_t from : {std::size_t{0}, std::size_t{3}}) {
        std::vector<std::byte> source(100), target(100, std::byte{0xee});
        for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i);
        auto expected = target;
        std::copy_n(source.begin() + static_cast<long>(from), bytes, expected.begin() + static_cast<long>(to));
        stream_copy(target.data() + to, source.data() + from, bytes);
        ASSERT_EQ(target, expected) << bytes << " bytes to " << to << " from " << from;
      }
}

}  // namespace
