#include "src/backend/common/halves.hpp"
#include "src/backend/cpu/reference.hpp"
#include "test/support/cases.hpp"
#include "test/support/functors.hpp"
#include "test/support/naive.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

namespace partita::conv_test {
namespace {

using naive::Array;
using naive::Case;
using naive::distance;
using naive::dot;
using naive::Generator;
using naive::whole;

/// The tensors of one case. y, dx and dw start with random content.
struct Operands {
  Tensor x, w, bias, y, dy, dx, dw;
  Operands(Generator& random, const Case& c, DType dtype) {
    const auto s = static_cast<std::size_t>(c.spatial);
    Box filters(1);
    filters[0] = c.y[1];
    x = random.tensor(dtype, naive::x_names[s], c.x);
    w = random.tensor(dtype, naive::w_names[s], c.w);
    bias = random.tensor(dtype, "F", filters);
    dy = random.tensor(dtype, naive::x_names[s], c.y);
    // The old content of y and dx must not matter. That of dw is kept if the kernel adds to it.
    y = random.tensor(dtype, naive::x_names[s], c.y);
    dx = random.tensor(dtype, naive::x_names[s], c.x);
    dw = random.tensor(dtype, naive::w_names[s], c.w);
  }
};

/// Computes the halves of a batch one after the other.
class InHalves final : public ReferenceBackend {
 public:
  std::string_view name() const override { return "in halves"; }
  void conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Tensor& y, Stream stream) override {
    if (intersect(x.box()[0], y.box()[0]).empty())
      return ReferenceBackend::conv_forward(windows, x, w, bias, y, stream);
    run_halves(x, y, [&](const Tensor& inputs, const Tensor& outputs) {
      ReferenceBackend::conv_forward(windows, inputs, w, bias, outputs, stream);
    });
  }
  void conv_backward_data(std::span<const Window> windows, const Tensor& dy, const Tensor& w, const Tensor& dx,
                          Stream stream) override {
    if (intersect(dx.box()[0], dy.box()[0]).empty())
      return ReferenceBackend::conv_backward_data(windows, dy, w, dx, stream);
    run_halves(dx, dy, [&](const Tensor& inputs, const Tensor& outputs) {
      ReferenceBackend::conv_backward_data(windows, outputs, w, inputs, stream);
    });
  }
  void conv_backward_filter(std::span<const Window> windows, const Tensor& x, const Tensor& dy, const Tensor& dw,
                            Write write, Stream stream) override {
    if (intersect(x.box()[0], dy.box()[0]).empty() || !halves_are_exact(ConvPass::backward_filter, dw.dtype()))
      return ReferenceBackend::conv_backward_filter(windows, x, dy, dw, write, stream);
    run_halves(x, dy, [&](const Tensor& inputs, const Tensor& outputs) {
      ReferenceBackend::conv_backward_filter(windows, inputs, outputs, dw, std::exchange(write, Write::add), stream);
    });
  }
};

std::vector<std::unique_ptr<Backend>> all_ways() {
  auto backends = test::all_types();
  backends.push_back(std::make_unique<InHalves>());
  return backends;
}

void compare(Generator& random, const Case& c, DType dtype, double tolerance) {
  SCOPED_TRACE(c.text);
  for (const auto& backend : all_ways()) {
    SCOPED_TRACE(backend->name());
    const Operands o(random, c, dtype);
    const bool with_bias = random.one_in(2);

    Array y(c.y_extents), dx(c.x_extents), dw = whole(o.dw, c.w_extents);
    const Array x = whole(o.x, c.x_extents), w = whole(o.w, c.w_extents), dy = whole(o.dy, c.y_extents);
    naive::conv_forward(c.windows, x, w, y);
    if (with_bias)
      naive::for_all(c.y_extents, [&](const naive::At& at) {
        const Index f = at[1] - c.y[1].lo;
        if (f >= 0 && f < o.bias.volume()) y(at) += o.bias.get(f);
      });
    naive::conv_backward_data(c.windows, dy, w, dx);
    const Write write = with_bias ? Write::add : Write::over;
    if (write == Write::over) naive::for_all(c.w_extents, [&](const naive::At& at) { dw(at) = 0; });
    naive::conv_backward_filter(c.windows, x, dy, dw);

    backend->conv_forward(c.slides, o.x, o.w, with_bias ? o.bias : Tensor(), o.y, {});
    backend->conv_backward_data(c.slides, o.dy, o.w, o.dx, {});
    backend->conv_backward_filter(c.slides, o.x, o.dy, o.dw, write, {});
    EXPECT_LE(distance(o.y, y), tolerance) << "y";
    EXPECT_LE(distance(o.dx, dx), tolerance) << "dx";
    EXPECT_LE(distance(o.dw, dw), tolerance) << "dw";
  }
}

class Conv : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Spatial, Conv, testing::Values(1, 2, 3));

TEST_P(Conv, IsTheNaiveLoops) {
  Generator random(static_cast<unsigned>(100 + GetParam()));
  for (std::uint64_t i = 0; i < test::cases(150); ++i) compare(random, random.conv(GetParam()), DType::f64, 1e-12);
}

TEST_P(Conv, RoundsOnceInShorterTypes) {
  Generator random(static_cast<unsigned>(200 + GetParam()));
  for (std::uint64_t i = 0; i < test::cases(40); ++i) {
    compare(random, random.conv(GetParam()), DType::f32, 1e-5);
    compare(random, random.conv(GetParam()), DType::bf16, 1.0 / 256);
    compare(random, random.conv(GetParam()), DType::f16, 1.0 / 2048);
  }
}

// Also for NaN, which must not become 0: the guard of a step looks for it.
TEST_P(Conv, FusedWithBiasAndActivationIsOneAfterTheOther) {
  constexpr std::array kinds{Activation::Kind::relu, Activation::Kind::sigmoid, Activation::Kind::tanh,
                             Activation::Kind::elu};
  Generator random(static_cast<unsigned>(250 + GetParam()));
  for (std::uint64_t i = 0; i < test::cases(40); ++i) {
    const Case c = random.conv(GetParam());
    SCOPED_TRACE(c.text);
    const Activation f{kinds[i % kinds.size()], 0.5};
    for (const auto& backend : test::all_types()) {
      SCOPED_TRACE(backend->name());
      const Operands o(random, c, DType::f64);
      if (i % 3 == 0 && o.x.volume() > 0) o.x.set(0, std::numeric_limits<double>::quiet_NaN());
      const Tensor bias = i % 2 == 0 ? o.bias : Tensor(), apart = o.y.like(o.y.box());
      backend->conv_forward(c.slides, o.x, o.w, bias, apart, {});
      backend->activation_forward(f, apart, apart, {});
      backend->fused_conv_forward(c.slides, o.x, o.w, {bias, f}, o.y, {});
      for (Index at = 0; at < apart.volume(); ++at) {
        if (std::isnan(apart.get(at)))
          EXPECT_TRUE(std::isnan(o.y.get(at)));
        else
          EXPECT_NEAR(o.y.get(at), apart.get(at), 1e-12);
      }
    }
  }
}

// Checks that the random cases are useful: in most of them outputs read inputs.
TEST_P(Conv, CasesAreSeldomEmpty) {
  Generator random(static_cast<unsigned>(100 + GetParam()));
  const auto backend = make_reference_backend();
  int nonzero = 0;
  for (int i = 0; i < 100; ++i) {
    const Case c = random.conv(GetParam());
    const Operands o(random, c, DType::f64);
    backend->conv_forward(c.slides, o.x, o.w, {}, o.y, {});
    nonzero += dot(o.y, o.y) > 0 ? 1 : 0;
  }
  EXPECT_GE(nonzero, 50);
}

// <conv(x, w), dy> = <x, conv'(dy, w)> = <w, conv'(x, dy)>
TEST_P(Conv, GradientsAreAdjoints) {
  Generator random(static_cast<unsigned>(300 + GetParam()));
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    for (std::uint64_t i = 0; i < test::cases(60); ++i) {
      const Case c = random.conv(GetParam());
      SCOPED_TRACE(c.text);
      const Operands o(random, c, DType::f64);
      backend->conv_forward(c.slides, o.x, o.w, {}, o.y, {});
      backend->conv_backward_data(c.slides, o.dy, o.w, o.dx, {});
      backend->conv_backward_filter(c.slides, o.x, o.dy, o.dw, Write::over, {});
      const double forward = dot(o.y, o.dy);
      EXPECT_NEAR(forward, dot(o.x, o.dx), 1e-11 * (1 + std::abs(forward)));
      EXPECT_NEAR(forward, dot(o.w, o.dw), 1e-11 * (1 + std::abs(forward)));
    }
  }
}

// Interior and boundary: two calls, one for each part of y, give the same as one call for all of y. The gradients of
// the parts add up to those of the whole.
TEST_P(Conv, PartsOfYAreTheWhole) {
  Generator random(static_cast<unsigned>(400 + GetParam()));
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    for (std::uint64_t i = 0; i < test::cases(60); ++i) {
      const Case c = random.conv(GetParam());
      SCOPED_TRACE(c.text);
      const Operands o(random, c, DType::f64);
      backend->conv_forward(c.slides, o.x, o.w, o.bias, o.y, {});
      backend->conv_backward_data(c.slides, o.dy, o.w, o.dx, {});
      Box lower = c.y, upper = c.y;
      const int d = static_cast<int>(random.draw(2, c.spatial + 1));
      lower[d].hi = upper[d].lo = random.draw(c.y[d].lo, c.y[d].hi);
      const Tensor y = o.y.like(c.y), dx = o.dx.like(c.x);
      for (const Box& box : {lower, upper}) {
        const Tensor part = o.y.like(box), gradient = o.dx.like(c.x);
        backend->conv_forward(c.slides, o.x, o.w, o.bias, part, {});
        copy_box(part, y, box, {});
        backend->conv_backward_data(c.slides, extract(o.dy, box, MemoryClass::workspace, {}), o.w, gradient, {});
        add(gradient, dx, {});
      }
      EXPECT_LE(distance(y, whole(o.y, c.y_extents)), 1e-14);
      EXPECT_LE(distance(dx, whole(o.dx, c.x_extents)), 1e-14);
    }
  }
}

TEST(ConvCase, EmptyBoxesGiveTheBiasAndNoGradient) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    Generator random(1);
    const std::vector<Window> slides(2, Window{.kernel = 3, .pad_lo = 1, .pad_hi = 1});
    const Tensor x = test::tensor(DType::f64, "NCHW", Box(Shape{{'N', 2}, {'C', 2}, {'H', 0}, {'W', 4}}));
    const Tensor w = random.tensor(DType::f64, "FCHW", Box(Shape{{'F', 3}, {'C', 2}, {'H', 3}, {'W', 3}}));
    const Tensor bias = random.tensor(DType::f64, "F", Box(Shape{{'F', 3}}));
    const Tensor y = random.tensor(DType::f64, "NCHW", Box(Shape{{'N', 2}, {'C', 3}, {'H', 4}, {'W', 4}}));
    const Tensor dw = random.tensor(DType::f64, "FCHW", w.box());
    const Array before = whole(dw, {3, 2, 1, 3, 3});
    backend->conv_backward_filter(slides, x, y, dw, Write::add, {});
    EXPECT_EQ(distance(dw, before), 0);
    backend->conv_backward_filter(slides, x, y, dw, Write::over, {});
    for (Index i = 0; i < dw.volume(); ++i) EXPECT_EQ(dw.get(i), 0);
    backend->conv_backward_data(slides, y, w, x, {});
    backend->conv_forward(slides, x, w, bias, y, {});
    for (Index i = 0; i < y.volume(); ++i) EXPECT_EQ(y.get(i), bias.get(i % 3));
    backend->conv_forward(slides, x, w, {}, y, {});
    for (Index i = 0; i < y.volume(); ++i) EXPECT_EQ(y.get(i), 0);
  }
}

// Several blocks of outputs; the last one is shorter.
TEST(ConvCase, LargerThanOneBlock) {
  Generator random(7);
  Case c;
  c.slides = {{3, 1, 1, 1, 1}, {3, 1, 1, 1, 1}};
  c.windows = {Window{}, c.slides[0], c.slides[1]};
  c.x_extents = {2, 3, 1, 67, 41};
  c.w_extents = {4, 3, 1, 3, 3};
  c.y_extents = {2, 4, 1, 67, 41};
  c.x = Box(Shape{{'N', 2}, {'C', 3}, {'H', 67}, {'W', 41}});
  c.w = Box(Shape{{'F', 4}, {'C', 3}, {'H', 3}, {'W', 3}});
  c.y = Box(Shape{{'N', 2}, {'C', 4}, {'H', 67}, {'W', 41}});
  compare(random, c, DType::f64, 1e-12);
}

TEST(ConvCase, RepeatsBitForBit) {
  Generator random(8);
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    const Case c = random.conv(2);
    const Operands o(random, c, DType::f32);
    backend->conv_forward(c.slides, o.x, o.w, o.bias, o.y, {});
    const Array first = whole(o.y, c.y_extents);
    const Tensor copy = extract(o.x, c.x, MemoryClass::workspace, {}), y = o.y.like(c.y);
    backend->conv_forward(c.slides, copy, o.w, o.bias, y, {});
    EXPECT_EQ(distance(y, first), 0);
  }
}

}  // namespace
}  // namespace partita::conv_test
