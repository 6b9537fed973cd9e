#include "partita/base/philox.hpp"

#include <gtest/gtest.h>

#include <set>

namespace partita::philox_test {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The known answers that Random123 publishes (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, IsAFunctionOfItsArguments) {
  const Random a(7, hash_text("conv1"), 3), again(7, hash_text("conv1"), 3);
  for (Index i = 0; i < 100; ++i) {
    EXPECT_EQ(a.bits(i), again.bits(i));
    EXPECT_EQ(a.uniform(i), again.uniform(i));
    EXPECT_EQ(a.normal(i), again.normal(i));
  }
}

TEST(Random, ManyAtATimeAreTheSame) {
  const Random random(7, hash_text("conv1"), 3);
  for (const Index first : {Index{0}, Index{5}, (Index{1} << 32) - 3})
    for (const std::size_t count : {0, 1, 63, 64, 65, 128, 200}) {
      std::vector<double> uniform(count), normal(count);
      random.uniform(first, uniform);
      random.normal(first, normal);
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(uniform[i], random.uniform(first + static_cast<Index>(i)));
        EXPECT_EQ(normal[i], random.normal(first + static_cast<Index>(i)));
      }
    }
}

TEST(Random, EveryArgumentMatters) {
  constexpr Index high = Index{1} << 32;
  const std::uint64_t far = std::uint64_t{1} << 32;
  const std::set<double> values{
      Random(7, 1, 3).uniform(5),       Random(8, 1, 3).uniform(5),       Random(7, 2, 3).uniform(5),
      Random(7, 1, 4).uniform(5),       Random(7, 1, 3).uniform(6),       Random(7, 1, 3).uniform(5 + high),
      Random(7 + far, 1, 3).uniform(5), Random(7, 1 + far, 3).uniform(5), Random(7, 1, 3 + far).uniform(5)};
  EXPECT_EQ(values.size(), 9U);
}

TEST(Random, UniformIsUniform) {
  const Random random(1, 2);
  constexpr Index n = 100000;
  double sum = 0, squares = 0;
  for (Index i = 0; i < n; ++i) {
    const double u = random.uniform(i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / n, 0.5, 0.005);
  EXPECT_NEAR(squares / n, 1.0 / 3, 0.005);
}

TEST(Random, NormalHasMomentsOfTheNormalDistribution) {
  const Random random(1, 2);
  constexpr Index n = 100000;
  double sum = 0, squares = 0, cubes = 0, fourths = 0, neighbors = 0;
  for (Index i = 0; i < n; ++i) {
    const double x = random.normal(i);
    sum += x;
    squares += x * x;
    cubes += x * x * x;
    fourths += x * x * x * x;
    neighbors += x * random.normal(i + 1);
  }
  EXPECT_NEAR(sum / n, 0, 0.02);
  EXPECT_NEAR(squares / n, 1, 0.02);
  EXPECT_NEAR(cubes / n, 0, 0.05);
  EXPECT_NEAR(fourths / n, 3, 0.15);
  EXPECT_NEAR(neighbors / n, 0, 0.02);
}

TEST(Hash, IsFnv1a) {
  EXPECT_EQ(hash_text(""), 0xcbf29ce484222325U);
  EXPECT_EQ(hash_text("a"), 0xaf63dc4c8601ec8cU);
  EXPECT_EQ(hash_text("foobar"), 0x85944171f73967e8U);
}

}  // namespace
}  // namespace partita::philox_test
