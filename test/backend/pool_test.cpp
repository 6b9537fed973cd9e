#include "test/support/functors.hpp"
#include "test/support/naive.hpp"

#include <gtest/gtest.h>

namespace partita::pool_test {
namespace {

using naive::Array;
using naive::Case;
using naive::dot;
using naive::Generator;
using naive::whole;

/// A pooling with a random convolution's windows. y is a part of the outputs; x holds the inputs that y's windows
/// cover, or all inputs.
struct PoolCase {
  Case conv;
  Pooling pooling;
  Box x;

  PoolCase(Generator& random, int spatial, PoolKind kind) : conv(random.conv(spatial)), x(conv.x) {
    pooling = {kind, conv.slides, random.one_in(2)};
    conv.y[1] = x[1] = conv.x[1];
    conv.y_extents[1] = conv.x_extents[1];
    x[0] = {0, conv.x_extents[0]};
    const bool all = random.one_in(2);
    for (int i = 0; i < spatial; ++i) {
      const Index n = conv.x_extents[5 - spatial + i];
      x[i + 2] = all ? Interval{0, n} : conv.slides[i].inputs_of(conv.y[i + 2], {0, n});
    }
    conv.text += " pool of " + x.print();
  }
};

/// The whole box in up to seven parts: one that is drawn, and what lies around it.
std::vector<Box> parts_of(const Box& whole, Generator& random) {
  Box part = whole;
  for (int d = 0; d < part.dims(); ++d) {
    if (d == 1 || part[d].empty()) continue;  // pooling takes all channels
    part[d].lo = random.draw(whole[d].lo, whole[d].hi);
    part[d].hi = random.draw(part[d].lo, whole[d].hi);
  }
  std::vector<Box> parts = subtract(whole, part);
  parts.push_back(part);
  return parts;
}

class Pool : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Spatial, Pool, testing::Values(1, 2, 3));

TEST_P(Pool, IsTheNaiveLoops) {
  Generator random(static_cast<unsigned>(10 + GetParam()));
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    const auto names = naive::x_names[GetParam()];
    for (int i = 0; i < 200; ++i) {
      const PoolCase c(random, GetParam(), i % 2 == 0 ? PoolKind::max : PoolKind::average);
      SCOPED_TRACE(c.conv.text);
      const Tensor global = random.tensor(DType::f64, names, [&] {
        Box box = c.x;
        for (int d = 2; d < box.dims(); ++d) box[d] = {0, c.conv.x_extents[5 - box.dims() + d]};
        return box;
      }());
      for (Index e = 0; e < global.volume(); ++e) global.set(e, std::round(4 * global.get(e)));  // gives equal maxima
      const Tensor x = extract(global, c.x, MemoryClass::workspace, {});
      const Tensor y = random.tensor(DType::f64, names, c.conv.y), picked = test::tensor(DType::i32, names, c.conv.y);
      Array want(c.conv.y_extents), position(c.conv.y_extents);
      naive::pool(c.pooling, c.conv.windows, whole(global, c.conv.x_extents), want, position);
      for (const Box& part : parts_of(y.box(), random)) backend->pool_forward(c.pooling, x, y, picked, part, {});
      naive::for_elements(y, [&](const naive::At& at, Index e) {
        EXPECT_TRUE(y.get(e) == want.get(at) || std::abs(y.get(e) - want.get(at)) < 1e-13);
        if (c.pooling.kind == PoolKind::max) {
          EXPECT_EQ(picked.get(e), position.get(at));
        }
      });
    }
  }
}

// For fixed picked inputs pooling is linear: <pool(x), dy> = <x, pool'(dy)>. The old content of dx is added to.
TEST_P(Pool, GradientIsTheAdjoint) {
  Generator random(static_cast<unsigned>(20 + GetParam()));
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    const auto names = naive::x_names[GetParam()];
    for (int i = 0; i < 100; ++i) {
      const PoolCase c(random, GetParam(), i % 2 == 0 ? PoolKind::max : PoolKind::average);
      SCOPED_TRACE(c.conv.text);
      const Tensor x = random.tensor(DType::f64, names, c.x), dy = random.tensor(DType::f64, names, c.conv.y);
      const Tensor y = dy.like(c.conv.y), picked = test::tensor(DType::i32, names, c.conv.y),
                   dx = random.tensor(DType::f64, names, c.x);
      const double before = dot(x, dx);
      backend->pool_forward(c.pooling, x, y, picked, y.box(), {});
      for (Index e = 0; e < y.volume(); ++e)
        if (std::isinf(y.get(e))) y.set(e, 0);  // windows that cover only padding pass no gradient
      for (const Box& part : parts_of(dy.box(), random)) backend->pool_backward(c.pooling, dy, picked, dx, part, {});
      EXPECT_NEAR(dot(y, dy), dot(x, dx) - before, 1e-11);
    }
  }
}

TEST(PoolCases, ShortTypesRoundOverlappingGradientsOnce) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    const std::vector<Window> slides{{.kernel = 3, .pad_lo = 1, .pad_hi = 1}};
    const Pooling pooling{PoolKind::average, slides, true};
    const Box box(Shape{{'N', 1}, {'C', 2}, {'W', 5}});
    const Tensor dy = test::tensor(DType::bf16, "NCW", box), dx = test::tensor(DType::bf16, "NCW", box);
    for (Index i = 0; i < dy.volume(); ++i) dy.set(i, 1 + static_cast<double>(i) / 64);
    for (Index i = 0; i < dx.volume(); ++i) dx.set(i, 2);
    backend->pool_backward(pooling, dy, {}, dx, dy.box(), {});
    // dx[w=2, c=0] = 2 + (dy[1] + dy[2] + dy[3]) / 3, where these elements of dy are 2, 4 and 6.
    EXPECT_EQ(dx.at({0, 0, 2}), 3.0625);
  }
}

/// The backends that compute in f32: the reference, oneDNN if this build has it, and the functors.
std::vector<std::unique_ptr<Backend>> backends() {
  std::vector<std::unique_ptr<Backend>> all;
  all.push_back(make_reference_backend());
  all.push_back(make_backend("auto", DType::f32, 1));
  all.push_back(test::make_functor_backend());
  return all;
}

TEST(PoolCases, NotANumberIsTheMaximumWhereverItIs) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Window> slides{{.kernel = 3, .stride = 3}};
  for (const auto& backend : backends())
    for (int at = 0; at < 4; ++at) {  // at 3: none
      const Tensor x = test::tensor(DType::f32, "NCW", Box(Shape{{'N', 1}, {'C', 1}, {'W', 3}}));
      const Box one(Shape{{'N', 1}, {'C', 1}, {'W', 1}});
      const Tensor y = test::tensor(DType::f32, "NCW", one), picked = test::tensor(DType::i32, "NCW", one),
                   dx = x.like(x.box());
      for (int i = 0; i < 3; ++i) x.set(i, i == at ? nan : 2 - i);
      backend->pool_forward({PoolKind::max, slides}, x, y, picked, y.box(), {});
      EXPECT_EQ(std::isnan(y.get(0)), at < 3) << backend->name() << ", NaN at " << at;
      EXPECT_EQ(picked.get(0), at % 3) << "the gradient goes to NaN, else to the first maximum";
      y.set(0, 5);
      backend->pool_backward({PoolKind::max, slides}, y, picked, dx, y.box(), {});
      EXPECT_EQ(dx.get(at % 3), 5);
    }
}

TEST(PoolCases, AllPaddingPicksNothing) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    const std::vector<Window> slides{{.kernel = 2, .stride = 2, .pad_lo = 2}};
    const Box in(Shape{{'N', 1}, {'C', 1}, {'W', 2}});
    const Tensor x = test::tensor(DType::f32, "NCW", in), y = test::tensor(DType::f32, "NCW", in),
                 picked = test::tensor(DType::i32, "NCW", in), dx = x.like(in);
    x.set(0, -3);
    x.set(1, -2);
    backend->pool_forward({PoolKind::max, slides}, x, y, picked, y.box(), {});
    EXPECT_EQ(y.get(0), -std::numeric_limits<double>::infinity());
    EXPECT_EQ(picked.get(0), -1);
    EXPECT_EQ(y.get(1), -2);
    y.set(0, 5);
    backend->pool_backward({PoolKind::max, slides}, y, picked, dx, y.box(), {});
    EXPECT_EQ(dx.get(0), 0);
    EXPECT_EQ(dx.get(1), -2);
  }
}

}  // namespace
}  // namespace partita::pool_test
