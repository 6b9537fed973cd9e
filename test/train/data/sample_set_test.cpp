#include "src/train/data/sample_set.hpp"

#include "src/train/trainer/sample_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>

namespace partita::test::sample_set_test {
namespace {

TEST(SampleSet, CountsAndFindsItsMembers) {
  std::mt19937 random(1);
  for (const Index samples : {1, 63, 64, 65, 1000}) {
    std::set<Index> expected;
    std::vector<Index> members;
    for (Index i = 0; i < samples / 2 + 1; ++i) members.push_back(static_cast<Index>(random()) % samples);
    expected.insert(members.begin(), members.end());
    const SampleSet set(members, samples);
    EXPECT_EQ(set.count(), static_cast<Index>(expected.size()));
    EXPECT_EQ(set.bytes(), SampleSet::bytes(samples));
    std::vector<Index> visited;
    set.each([&](Index sample) { visited.push_back(sample); });
    EXPECT_EQ(visited, std::vector<Index>(expected.begin(), expected.end()));
    Index place = 0;
    for (Index sample = 0; sample < samples; ++sample) {
      EXPECT_EQ(set.has(sample), expected.contains(sample));
      if (!expected.contains(sample)) continue;
      EXPECT_EQ(set.place(sample), place++);
    }
  }
  EXPECT_FALSE(SampleSet().has(0));
}

TEST(SampleOrder, OfAnEpochIsTheShuffledOne) {
  const auto allocator = std::make_shared<Allocator>();
  {
    const SampleOrder order = SampleOrder::shuffled(1000, 7, 3, allocator);
    const auto expected = shuffled(1000, 7, 3);
    for (Index i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], expected[i]);
    EXPECT_EQ(order.part(10, 5)[4], expected[14]);
    EXPECT_EQ(order.from(990).from(5).size(), 5);
    EXPECT_EQ(order.from(990).from(5)[0], expected[995]);
    EXPECT_EQ(allocator->now()[MemoryClass::data], 4000) << "4 bytes a sample";
  }
  EXPECT_EQ(allocator->now()[MemoryClass::data], 0);
}

TEST(SampleOrder, InOrderNeedsNoMemory) {
  constexpr Index many = Index{1} << 40;
  const SampleOrder order = SampleOrder::ascending(many).part(many - 5, 5);
  EXPECT_EQ(order[4], many - 1);
  const std::vector<Index> some{5, 3, 9};
  EXPECT_EQ(SampleOrder::given(some).part(1, 2)[1], 9);
}

TEST(SampleOrder, EightBytesASampleFromTwoToThe32On) {
  constexpr Index most = Index{1} << 32;
  EXPECT_EQ(SampleList::bytes(10, most), 40);
  EXPECT_EQ(SampleList::bytes(10, most + 1), 80);
}

}  // namespace
}  // namespace partita::test::sample_set_test
