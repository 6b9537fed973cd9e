// Which calls of attention cuDNN may compute, and in which parts.
#include "src/backend/gpu/fused_attention.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace partita::fused_attention_test {
namespace {

constexpr AttentionTraits taken{.dim = 64};

TEST(FusedAttention, EachReasonIsGiven) {
  EXPECT_EQ(why_not_fused(taken), "");
  EXPECT_EQ(why_not_fused({.dtype = DType::f16, .results = DType::f16, .dim = 8, .cudnn = 91600}), "");
  std::vector<AttentionTraits> refused(9, taken);
  refused[0].dtype = refused[0].results = DType::f32;
  refused[1].results = DType::f32;
  refused[2].segments = true;
  refused[3].adds = true;
  refused[4].drops = true;
  refused[5].dim = 12;
  refused[6].alignment = 8;
  refused[7].apart = true;
  refused[8].cudnn = 91599;
  std::set<std::string_view> reasons;
  for (const AttentionTraits& traits : refused) {
    EXPECT_NE(why_not_fused(traits), "") << &traits - refused.data();
    reasons.insert(why_not_fused(traits));
  }
  EXPECT_EQ(reasons.size(), refused.size());
}

AttentionGeometry geometry(Index samples, Index groups, Index queries, bool backward) {
  const Index dim = 16, places = 130, step = (queries + 2) * dim, channels = groups * step;
  AttentionGeometry call{.backward = backward ? 1 : 0,
                         .samples = samples,
                         .groups = groups,
                         .queries = queries,
                         .dim = dim,
                         .places = places,
                         .keys = places};
  call.q = call.dq = {places, channels, 0, step, dim};
  call.k = call.dk = {places, channels, queries * dim, step, dim};
  call.v = call.dv = {places, channels, (queries + 1) * dim, step, dim};
  call.y = {places, groups * queries * dim, 0, queries * dim, dim};
  return call;
}

// A forward pass stores nothing for pairs of places, so that it is one execution where distances are constant.
TEST(FusedAttention, OneExecutionIsEnoughWhereDistancesAreConstant) {
  const Index much = Index{1} << 40;
  for (const bool backward : {false, true}) {
    const auto own_keys = attention_parts(geometry(4, 6, 1, backward), much);
    ASSERT_FALSE(own_keys.empty());
    EXPECT_EQ(own_keys[0].batch, 4);
    EXPECT_EQ(own_keys[0].heads, 6);
    EXPECT_EQ(own_keys[0].key_heads, 6);
    const auto shared = attention_parts(geometry(4, 6, 3, backward), much);
    ASSERT_FALSE(shared.empty());
    EXPECT_EQ(shared[0].samples, 1) << "a batch of all samples takes six executions, one of all groups takes four";
    EXPECT_EQ(shared[0].batch, 6);
    EXPECT_EQ(shared[0].heads, 3);
    EXPECT_EQ(shared[0].key_heads, 1);
    EXPECT_EQ(attention_parts(geometry(6, 4, 3, backward), much)[0].samples, 6);
  }
}

// Backward a part stores 2 bytes for each pair of places, which are counted in tiles of 128.
TEST(FusedAttention, PartsKeepToTheWorkspace) {
  const AttentionGeometry call = geometry(4, 6, 1, true);
  const Index pairs = 2 * 256 * 256, much = Index{1} << 40;
  Index before = 25;
  for (const Index heads : {24, 12, 8, 6, 4, 3, 2, 1}) {
    const Index rows = 2 * ((heads * 130 * 4 + 255) / 256 * 256);
    const auto fits = attention_parts(call, heads * pairs + rows);
    ASSERT_FALSE(fits.empty());
    EXPECT_EQ(fits[0].samples * fits[0].groups, heads);
    EXPECT_EQ(fits[0].bytes, rows);
    EXPECT_LT(fits[0].batch * fits[0].heads, before);
    before = heads;
    EXPECT_TRUE(std::is_sorted(fits.begin(), fits.end(),
                               [](const auto& a, const auto& b) { return a.batch * a.heads > b.batch * b.heads; }));
    const auto less = attention_parts(call, heads * pairs + rows - 1);
    EXPECT_TRUE(less.empty() || less[0].samples * less[0].groups < heads);
  }
  EXPECT_TRUE(attention_parts(call, pairs).empty());
  const auto shared = attention_parts(geometry(1, 1, 2, true), 2 * pairs + 2 * 2 * 2 * 130 * 16 + 2 * 1280);
  ASSERT_EQ(shared.size(), 1U) << "gradients of keys and values of each head are stored before they are summed";
  EXPECT_TRUE(attention_parts(geometry(1, 1, 2, true), 2 * pairs + 2 * 2 * 2 * 130 * 16 + 2 * 1280 - 1).empty());
  EXPECT_EQ(attention_parts(geometry(4, 6, 1, false), 49 * 256)[0].batch, 4) << "24 heads with 4 bytes for each place";
  EXPECT_EQ(attention_parts(call, much).size(), 3U * 4U);
}

// Our own kernels then write what there is.
TEST(FusedAttention, EmptyCallsHaveNoParts) {
  AttentionGeometry call = geometry(4, 6, 1, false);
  call.keys = 0;
  EXPECT_TRUE(attention_parts(call, 1 << 20).empty());
  call.keys = call.places;
  call.places = 0;
  EXPECT_TRUE(attention_parts(call, 1 << 20).empty());
  EXPECT_TRUE(attention_parts(geometry(0, 6, 1, false), 1 << 20).empty());
  EXPECT_TRUE(attention_parts(geometry(4, 0, 1, true), 1 << 20).empty());
}

}  // namespace
}  // namespace partita::fused_attention_test
