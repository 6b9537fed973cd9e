#include "partita/base/error.hpp"
#include "test/support/entropy.hpp"
#include "test/support/functors.hpp"
#include "test/support/naive.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace partita::elementwise_test {
namespace {

using naive::Generator;

TEST(Relu, ClampsAndMasks) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    Generator random(1);
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const Index width : {0, 1, 13}) {
        Box box(Shape{{'N', 2}, {'C', 3}, {'W', width}});
        const Tensor x = random.tensor(dtype, "NCW", box), dy = random.tensor(dtype, "NCW", box);
        const Tensor y = x.like(box), dx = x.like(box);
        if (width > 0) x.set(0, 0);
        backend->activation_forward({}, x, y, {});
        backend->activation_backward({}, y, dy, dx, {});
        for (Index i = 0; i < x.volume(); ++i) {
          EXPECT_EQ(y.get(i), std::max(x.get(i), 0.0));
          EXPECT_EQ(dx.get(i), x.get(i) > 0 ? dy.get(i) : 0.0);
        }
      }
  }
}

TEST(Sum, IsRoundedOnceAndMayOverwrite) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    Generator random(2);
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const Index width : {0, 1, 13})
        for (const bool relu : {false, true}) {
          const Box box(Shape{{'N', 2}, {'C', 3}, {'W', width}});
          const Tensor a = random.tensor(dtype, "NCW", box), b = random.tensor(dtype, "NCW", box), y = a.like(box);
          const Tensor expected = a.like(box);
          for (Index i = 0; i < a.volume(); ++i) {
            expected.set(i, a.get(i) + b.get(i));
            if (relu) expected.set(i, std::max(expected.get(i), 0.0));
          }
          backend->sum(a, b, relu, y, {});
          backend->sum(a, b, relu, a, {});
          for (Index i = 0; i < a.volume(); ++i) {
            EXPECT_EQ(y.get(i), expected.get(i));
            EXPECT_EQ(a.get(i), expected.get(i));
          }
        }
  }
}

TEST(Dropout, AddsWhatItLeavesAndMayOverwrite) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    Generator random(3);
    const Tensor step = test::tensor(DType::f64, "F", Box(Shape{{'F', 1}}));
    step.set(0, 7);
    const Random numbers(3, 4, 5);
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const Index width : {0, 1, 13}) {
        const Box box(Shape{{'N', 2}, {'C', 3}, {'W', width}});
        const Shape whole{{'N', 2}, {'C', 3}, {'W', width}};
        const Tensor x = random.tensor(dtype, "NCW", box), added = random.tensor(dtype, "NCW", box);
        const Tensor y = x.like(box), expected = x.like(box), factor = test::tensor(dtype, "F", step.box());
        factor.set(0, 1 / 0.6);  // is rounded to the type
        int kept = 0;
        for (Index n = 0; n < 2; ++n)
          for (Index c = 0; c < 3; ++c)
            for (Index w = 0; w < width; ++w) {
              const Index at = (n * width + w) * 3 + c;  // channels are the innermost dimension
              const bool keeps = numbers.at_step(7).uniform(100 + (n * 3 + c) * width + w) >= 0.4;
              expected.set(at, added.get(at) + (keeps ? factor.get(0) * x.get(at) : 0));
              kept += keeps ? 1 : 0;
            }
        backend->dropout(0.4, numbers, step, 100, whole, x, added, y, {});
        backend->dropout(0.4, numbers, step, 100, whole, x, added, added, {});
        for (Index i = 0; i < y.volume(); ++i) {
          const double off = dtype == DType::f64 ? 1e-15 : dtype == DType::f32 ? 1e-6 : 0;
          EXPECT_NEAR(y.get(i), expected.get(i), off * (1 + std::abs(expected.get(i)))) << i;
          EXPECT_EQ(added.get(i), y.get(i));
        }
        backend->dropout(0.4, numbers, step, 100, whole, x, y, x, {});
        if (width == 13) {
          EXPECT_GT(kept, 0);
          EXPECT_LT(kept, 78);
        }
      }
  }
}

TEST(Activation, KeepsWhatIsNotANumber) {
  using Kind = Activation::Kind;
  const Box box(Shape{{'N', 1}, {'C', 1}});
  for (const char* name : {"reference", "auto"})
    for (const Kind kind : Activation::kinds()) {
      const auto backend = make_backend(name, DType::f32, 1);
      const Activation f{kind, 0.5};
      const Tensor x = test::tensor(DType::f32, "NC", box), y = x.like(box), dy = x.like(box), dx = x.like(box);
      x.set(0, std::numeric_limits<double>::quiet_NaN());
      dy.set(0, 1);
      backend->activation_forward(f, x, y, {});
      EXPECT_TRUE(std::isnan(y.get(0))) << partita::name(kind);
      if (kind == Kind::leaky_relu) continue;  // its derivative is a constant on either side
      backend->activation_backward(f, f.differentiates_value() ? y : x, dy, dx, {});
      const bool kept = kind == Kind::relu ? dx.get(0) == 1 : std::isnan(dx.get(0));
      EXPECT_TRUE(kept) << partita::name(kind) << " gives the gradient " << dx.get(0);
    }
}

TEST(Difference, KeepsWhatIsNotANumber) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    const Box box(Shape{{'N', 1}, {'C', 1}});
    const Tensor x = test::tensor(DType::f32, "NC", box), target = x.like(box), dx = x.like(box);
    x.set(0, std::numeric_limits<double>::quiet_NaN());
    for (const bool absolute : {false, true}) {
      const Tensor result = test::tensor(DType::f64, "F", Box(Shape{{'F', 2}}));
      backend->difference_forward(absolute, x, target, 1, result, {});
      EXPECT_TRUE(std::isnan(result.get(0)));
      backend->difference_backward(absolute, x, target, 1, dx, {});
      EXPECT_TRUE(std::isnan(dx.get(0)));
    }
  }
}

Box rows_box(Index rows, Index channels) {
  Box box(2);
  box[0] = {5, 5 + rows};
  box[1] = {0, channels};
  return box;
}

/// The expected values are PyTorch 2's (torch.nn.functional, float64) at -2, -0.5, 0, 0.5 and 2, with slope 0.2 and
/// alpha 1.5.
TEST(Activation, HasTheKnownValues) {
  using Kind = Activation::Kind;
  struct Known {
    Activation f;
    std::array<double, 5> y;
  };
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    for (const auto& [f, want] :
         {Known{{Kind::leaky_relu, 0.2}, {-0.4, -0.1, 0, 0.5, 2}},
          Known{{Kind::elu, 1.5}, {-1.2969970751450809, -0.59020401043104987, 0, 0.5, 2}},
          Known{{Kind::sigmoid},
                {0.11920292202211755, 0.37754066879814541, 0.5, 0.62245933120185459, 0.88079707797788243}},
          Known{{Kind::tanh}, {-0.9640275800758169, -0.46211715726000973, 0, 0.46211715726000973, 0.9640275800758169}},
          Known{{Kind::gelu},
                {-0.045500263896358417, -0.15426876936299344, 0, 0.34573123063700656, 1.9544997361036416}},
          Known{{Kind::silu}, {-0.2384058440442351, -0.1887703343990727, 0, 0.3112296656009273, 1.7615941559557649}}}) {
      const Tensor x = test::tensor(DType::f64, "NC", rows_box(1, 5)), y = x.like(x.box());
      for (Index i = 0; i < 5; ++i) x.set(i, std::array{-2.0, -0.5, 0.0, 0.5, 2.0}[i]);
      backend->activation_forward(f, x, y, {});
      for (Index i = 0; i < 5; ++i) EXPECT_NEAR(y.get(i), want[i], 1e-15) << name(f.kind);
    }
  }
}

TEST(Activation, GradientIsTheDerivative) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    Generator random(7);
    for (const Activation::Kind kind : Activation::kinds()) {
      const Activation f{kind, 0.3};
      const Tensor x = random.tensor(DType::f64, "NC", rows_box(3, 7)), dy = random.tensor(DType::f64, "NC", x.box());
      const Tensor y = x.like(x.box()), dx = x.like(x.box()), above = x.like(x.box()), below = x.like(x.box());
      backend->activation_forward(f, x, y, {});
      backend->activation_backward(f, f.differentiates_value() ? y : x, dy, dx, {});
      constexpr double h = 1e-6;
      for (const double sign : {1.0, -1.0}) {
        const Tensor moved = x.like(x.box());
        for (Index i = 0; i < x.volume(); ++i) moved.set(i, x.get(i) + sign * h);
        backend->activation_forward(f, moved, sign > 0 ? above : below, {});
      }
      for (Index i = 0; i < x.volume(); ++i)
        EXPECT_NEAR(dx.get(i), (above.get(i) - below.get(i)) / (2 * h) * dy.get(i), 1e-8) << name(f.kind);
    }
  }
}

TEST(CrossEntropy, IsItsDefinition) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    Generator random(2);
    for (const Index rows : {0, 1, 7})
      for (const Index channels : {1, 2, 10}) {
        const Tensor x = random.tensor(DType::f64, "NC", rows_box(rows, channels)), dx = x.like(x.box());
        const Tensor labels = test::tensor(DType::i32, "N", Box(Shape{{'N', rows}})),
                     result = test::tensor(DType::f64, "F", Box(Shape{{'F', 2}}));
        for (Index n = 0; n < rows; ++n) labels.set(n, static_cast<double>(random.draw(0, channels - 1)));
        double want = 0, hits = 3;
        result.set(0, 2);  // not zero, as the kernel must add
        result.set(1, 3);
        test::cross_entropy(*backend, x, labels, 4, result);
        test::cross_entropy_gradient(*backend, x, labels, 0.25, dx);
        for (Index n = 0; n < rows; ++n) {
          const auto label = static_cast<Index>(labels.get(n));
          double sum = 0;
          bool largest = true;
          for (Index c = 0; c < channels; ++c) {
            sum += std::exp(x.at({n + 5, c}));
            largest = largest && x.at({n + 5, c}) <= x.at({n + 5, label});
          }
          want += std::log(sum) - x.at({n + 5, label});
          hits += largest ? 1 : 0;
          for (Index c = 0; c < channels; ++c)
            EXPECT_NEAR(dx.at({n + 5, c}), 0.25 * (std::exp(x.at({n + 5, c})) / sum - (c == label ? 1 : 0)), 1e-14);
        }
        EXPECT_NEAR(result.get(0), 2 + want / 4, 1e-12);
        EXPECT_EQ(result.get(1), hits);
      }
  }
}

/// Labels of x with weights that the backend has written, if it weighs classes.
Labels weighed(Backend& backend, const Tensor& x, const Tensor& numbers, bool weighs, double smoothing) {
  Labels labels = test::labels_of(x, numbers);
  labels.ignored = -100;
  labels.smoothing = smoothing;
  if (!weighs) return labels;
  std::vector<double> weights;
  for (Index c = 0; c < labels.classes; ++c) weights.push_back(0.25 * static_cast<double>(c % 5));
  labels.weights = test::tensor(DType::f64, "F", Box(Shape{{'F', labels.classes}}));
  backend.write_numbers(weights, labels.weights, {});
  labels.sum_of_weights = std::accumulate(weights.begin(), weights.end(), 0.0);
  return labels;
}

TEST(CrossEntropy, CountsLabelsAsTheyWeigh) {
  for (const auto& backend : test::all_types())
    for (const Index channels : {1, 3, 70})
      for (const bool weighs : {false, true})
        for (const double smoothing : {0.0, 0.25}) {
          SCOPED_TRACE(fmt::format("{} {} channels, {}, {}", backend->name(), channels, weighs, smoothing));
          constexpr Index rows = 9;
          Generator random(4);
          const Tensor x = random.tensor(DType::f64, "NC", rows_box(rows, channels)), dx = x.like(x.box());
          const Tensor numbers = test::tensor(DType::i32, "N", Box(Shape{{'N', rows}})),
                       result = test::tensor(DType::f64, "F", Box(Shape{{'F', 4}}));
          for (Index n = 0; n < rows; ++n)
            numbers.set(n, n % 3 == 1 ? -100 : static_cast<double>(random.draw(0, channels - 1)));
          const Labels labels = weighed(*backend, x, numbers, weighs, smoothing);
          const auto weight = [&](Index c) { return weighs ? 0.25 * static_cast<double>(c % 5) : 1.0; };
          result.set(2, 7);  // not zero, as the kernel must add
          test::cross_entropy(*backend, x, labels, 4, result);
          test::cross_entropy_gradient(*backend, x, labels, 0.5, dx);
          double loss = 0, hits = 0, weights = 0;
          for (Index n = 0; n < rows; ++n) {
            const auto label = static_cast<Index>(numbers.get(n));
            double sum = 0, most = x.at({n + 5, 0});
            for (Index c = 0; c < channels; ++c) {
              sum += std::exp(x.at({n + 5, c}));
              most = std::max(most, x.at({n + 5, c}));
            }
            std::vector<double> factors(static_cast<std::size_t>(channels));  // of -log p, by class
            for (Index c = 0; c < channels && label >= 0; ++c)
              factors[c] = weight(c) * (smoothing / static_cast<double>(channels) + (c == label ? 1 - smoothing : 0));
            const double all = std::accumulate(factors.begin(), factors.end(), 0.0);
            for (Index c = 0; c < channels; ++c) {
              loss += factors[c] * (std::log(sum) - x.at({n + 5, c}));
              EXPECT_NEAR(dx.at({n + 5, c}), 0.5 * (all * std::exp(x.at({n + 5, c})) / sum - factors[c]), 1e-14);
            }
            hits += label >= 0 && x.at({n + 5, label}) == most ? 1 : 0;
            weights += label >= 0 ? weight(label) : 0;
          }
          EXPECT_NEAR(result.get(0), loss / 4, 1e-12);
          EXPECT_EQ(result.get(1), hits);
          EXPECT_NEAR(result.get(2), 7 + weights / 4, 1e-12);
          EXPECT_EQ(result.get(3), 6);
        }
}

// As ranks do that hold some of the channels each, also none.
void check_cut_channels(Backend& backend, bool weighs, double smoothing) {
  constexpr Index rows = 6, channels = 7;
  SCOPED_TRACE(fmt::format("{} {} {}", backend.name(), weighs, smoothing));
  Generator random(3);
  const Tensor x = random.tensor(DType::f64, "NC", rows_box(rows, channels)), dx = x.like(x.box());
  for (Index n = 0; n < rows; ++n) x.set(n * channels + 4, x.get(n * channels + n % 4));  // equal ones
  const Tensor numbers_of_classes = test::tensor(DType::i32, "N", Box(Shape{{'N', rows}}));
  for (Index n = 0; n < rows; ++n) numbers_of_classes.set(n, static_cast<double>(n == 5 ? 4 : n == 2 ? -100 : n));
  const Labels labels = weighed(backend, x, numbers_of_classes, weighs, smoothing);
  const auto pair = [] { return test::tensor(DType::f64, "F", Box(Shape{{'F', 2}})); };
  const Tensor want = pair(), found = pair();
  test::cross_entropy(backend, x, labels, 3, want);
  test::cross_entropy_gradient(backend, x, labels, 0.5, dx);
  std::vector<Tensor> parts, numbers;
  for (const Interval part : {Interval{0, 3}, Interval{3, 3}, Interval{3, 4}, Interval{4, 7}}) {
    Box box = x.box();
    box[1] = part;
    parts.push_back(extract(x, box, MemoryClass::workspace, {}));
    numbers.push_back(test::tensor(DType::f64, "F", Box(Shape{{'F', labels.numbers() * rows}})));
    backend.cross_entropy_maxima(parts.back(), labels, numbers.back(), {});
  }
  const auto combine = [&](Index first, Index count, auto&& op) {
    for (Index i = first; i < first + count; ++i) {
      double all = numbers[0].get(i);
      for (const Tensor& each : numbers) all = &each == &numbers[0] ? all : op(all, each.get(i));
      for (const Tensor& each : numbers) each.set(i, all);
    }
  };
  combine(0, rows, [](double a, double b) { return std::max(a, b); });
  for (std::size_t i = 0; i < parts.size(); ++i) backend.cross_entropy_sums(parts[i], labels, numbers[i], {});
  combine(rows, (labels.numbers() - 1) * rows, [](double a, double b) { return a + b; });
  backend.cross_entropy_loss(labels, numbers[0], 3, found, {});
  EXPECT_NEAR(found.get(0), want.get(0), 1e-14);
  EXPECT_EQ(found.get(1), want.get(1));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Tensor gradient = parts[i].like(parts[i].box());
    backend.cross_entropy_backward(parts[i], labels, numbers[i], 0.5, gradient, {});
    for (Index n = gradient.box()[0].lo; n < gradient.box()[0].hi; ++n)
      for (Index c = gradient.box()[1].lo; c < gradient.box()[1].hi; ++c)
        EXPECT_NEAR(gradient.at({n, c}), dx.at({n, c}), 1e-15);
  }
}

TEST(CrossEntropy, OfCutChannelsIsThatOfWholeOnes) {
  for (const auto& backend : test::all_types())
    for (const bool weighs : {false, true})
      for (const double smoothing : {0.0, 0.25}) check_cut_channels(*backend, weighs, smoothing);
}

TEST(CrossEntropy, IsStableAndPrefersTheFirstOfEquals) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    const Tensor x = test::tensor(DType::f32, "NC", rows_box(2, 3)), dx = x.like(x.box());
    const std::array<double, 6> values{1e4, 1e4, -1e4, -2e4, -2e4, -2e4};
    for (Index i = 0; i < 6; ++i) x.set(i, values[i]);
    const Tensor labels = test::tensor(DType::i32, "N", Box(Shape{{'N', 2}})),
                 result = test::tensor(DType::f64, "F", Box(Shape{{'F', 2}}));
    labels.set(1, 1);
    test::cross_entropy(*backend, x, labels, 1, result);
    EXPECT_NEAR(result.get(0), std::log(2.0) + std::log(3.0), 1e-12);
    EXPECT_EQ(result.get(1), 1);
    test::cross_entropy_gradient(*backend, x, labels, 1, dx);
    EXPECT_NEAR(dx.get(0), -0.5, 1e-6);
    EXPECT_NEAR(dx.get(1), 0.5, 1e-6);
    EXPECT_EQ(dx.get(2), 0);
  }
}

TEST(Axpby, IsItsDefinitionInEveryType) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    Generator random(11);
    const Box box(Shape{{'F', 5}});
    for (const DType from : {DType::f64, DType::f32, DType::bf16})
      for (const DType to : {DType::f64, DType::f32, DType::f16}) {
        const Tensor x = random.tensor(from, "F", box), y = random.tensor(to, "F", box), expected = y.like(box);
        for (Index i = 0; i < 5; ++i) expected.set(i, 2 * x.get(i) - 0.5 * y.get(i));
        backend->axpby(2, x, -0.5, y, {});
        for (Index i = 0; i < 5; ++i) EXPECT_EQ(y.get(i), expected.get(i));
        y.set(0, std::numeric_limits<double>::quiet_NaN());
        for (Index i = 0; i < 5; ++i) expected.set(i, 0.25 * x.get(i));
        backend->axpby(0.25, x, 0, y, {});  // overwrites, also what is not a number
        for (Index i = 0; i < 5; ++i) EXPECT_EQ(y.get(i), expected.get(i));
      }
  }
}

TEST(Squares, AddUpAndTellWhatIsNotFinite) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    const Tensor sum = test::tensor(DType::f64, "F", Box(Shape{{'F', 1}}));
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const Index place : {0, 17, 32}) {
        const Tensor x = test::tensor(dtype, "F", Box(Shape{{'F', 33}}));
        for (Index i = 0; i < 33; ++i) x.set(i, i % 2 == 0 ? 6e4 : -3.5);
        double expected = 2;
        for (Index i = 0; i < 33; ++i) expected += x.get(i) * x.get(i);
        sum.set(0, 2);
        backend->add_squares(x, sum, {});
        EXPECT_NEAR(sum.get(0), expected, 1e-14 * expected) << name(dtype);
        for (const double bad : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                                 std::numeric_limits<double>::quiet_NaN()}) {
          x.set(place, bad);
          sum.set(0, 0);
          backend->add_squares(x, sum, {});
          EXPECT_FALSE(std::isfinite(sum.get(0))) << name(dtype) << " at " << place;
          x.set(place, 0);
          backend->add_squares(x, sum, {});
          EXPECT_FALSE(std::isfinite(sum.get(0))) << "it stays";
        }
      }
  }
}

/// A padded row-major matrix, stored in a tensor without channels. The distance between rows is `leading` elements.
struct Matrix {
  Index rows, columns, leading;
  Tensor data;
  Matrix(Generator& random, DType dtype, Index r, Index c)
      : rows(r), columns(c), leading(c + random.draw(0, 3)), data(random.tensor(dtype, "HW", box())) {}
  Box box() const { return Box(Shape{{'H', rows}, {'W', std::max<Index>(leading, 1)}}); }
  double at(bool transposed, Index i, Index j) const { return transposed ? data.at({j, i}) : data.at({i, j}); }
};

void check_gemm(Generator& random, Backend& backend, DType dtype, double tolerance) {
  const Index m = random.draw(0, 23), n = random.draw(0, 23), k = random.draw(0, 23);
  const bool ta = random.one_in(2), tb = random.one_in(2);
  const Matrix a(random, dtype, ta ? k : m, ta ? m : k), b(random, dtype, tb ? n : k, tb ? k : n),
      c(random, dtype, m, n);
  const double alpha = random.real(), beta = random.one_in(3) ? 0 : random.one_in(2) ? 1 : random.real();
  const Tensor before = extract(c.data, c.data.box(), MemoryClass::workspace, {});
  if (beta == 0)
    for (Index i = 0; i < m; ++i)
      for (Index j = 0; j < n; ++j) c.data.set(i * c.data.stride(0) + j, std::numeric_limits<double>::quiet_NaN());
  backend.gemm(dtype, ta, tb, m, n, k, alpha, a.data.data(), a.data.stride(0), b.data.data(), b.data.stride(0), beta,
               c.data.data(), c.data.stride(0), {});
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < c.leading; ++j) {
      double want = before.at({i, j});
      if (j < n) {
        want *= beta;
        for (Index l = 0; l < k; ++l) want += alpha * a.at(ta, i, l) * b.at(tb, l, j);
      }
      ASSERT_NEAR(c.data.at({i, j}), want, tolerance) << m << " " << n << " " << k << " " << ta << tb << " " << beta;
    }
}

TEST(Gemm, IsTheNaiveLoops) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    Generator random(3);
    for (int i = 0; i < 200; ++i) {
      check_gemm(random, *backend, DType::f64, 1e-13);
      check_gemm(random, *backend, DType::f32, 1e-5);
      check_gemm(random, *backend, DType::bf16, 0.1);
      check_gemm(random, *backend, DType::f16, 0.02);
    }
  }
}

/// y = f(op(A) op(B) + bias)
void check_fused_gemm(Generator& random, Backend& backend) {
  const Index m = random.draw(0, 23), n = random.draw(0, 23), k = random.draw(0, 23);
  const bool ta = random.one_in(3), tb = !random.one_in(3), relu = random.one_in(2);
  const Matrix a(random, DType::f32, ta ? k : m, ta ? m : k), b(random, DType::f32, tb ? n : k, tb ? k : n);
  const Tensor bias = random.one_in(3) ? Tensor() : random.tensor(DType::f32, "F", Box(Shape{{'F', n}})),
               y = random.tensor(DType::f32, "NC", Box(Shape{{'N', m}, {'C', n}}));
  Epilogue epilogue(bias);
  if (relu) epilogue.activation = Activation{.kind = Activation::Kind::relu};
  backend.fused_gemm(ta, tb, m, n, k, a.data.data(), a.data.stride(0), b.data.data(), b.data.stride(0), epilogue, y,
                     {});
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j) {
      double want = bias ? bias.get(j) : 0;
      for (Index l = 0; l < k; ++l) want += a.at(ta, i, l) * b.at(tb, l, j);
      ASSERT_NEAR(y.at({i, j}), relu ? std::max(want, 0.0) : want, 1e-5)
          << m << " " << n << " " << k << " " << ta << tb << " " << static_cast<bool>(bias);
    }
}

TEST(Gemm, AddsABiasAndAppliesAFunction) {
  std::vector<std::unique_ptr<Backend>> backends = test::all_types();
  if (!onednn_version().empty())
    for (const int threads : {1, 3}) backends.push_back(make_onednn_backend(threads));
  for (const auto& backend : backends) {
    SCOPED_TRACE(backend->name());
    Generator random(4);
    for (int i = 0; i < 200; ++i) check_fused_gemm(random, *backend);
  }
}

/// With factors of 1, oneDNN multiplies by another function, and by yet another one if the rows of A are far apart.
TEST(Gemm, EveryFunctionOfOneDnnMultiplies) {
  if (onednn_version().empty()) GTEST_SKIP() << "this build lacks oneDNN";
  for (const int threads : {1, 3}) {
    const auto backend = make_onednn_backend(threads);
    Generator random(5);
    for (int i = 0; i < 200; ++i) {
      const Index m = random.draw(1, 23), n = random.draw(1, 23), k = random.draw(1, 23);
      const bool ta = random.one_in(2), tb = random.one_in(2), adds = random.one_in(2);
      const Index beyond = random.one_in(2) ? 1024 : 0;
      const Matrix a(random, DType::f32, ta ? k : m, (ta ? m : k) + beyond),
          b(random, DType::f32, tb ? n : k, tb ? k : n), c(random, DType::f32, m, n);
      const Tensor before = extract(c.data, c.data.box(), MemoryClass::workspace, {});
      backend->gemm(DType::f32, ta, tb, m, n, k, 1, a.data.data(), a.data.stride(0), b.data.data(), b.data.stride(0),
                    adds ? 1 : 0, c.data.data(), c.data.stride(0), {});
      for (Index row = 0; row < m; ++row)
        for (Index column = 0; column < n; ++column) {
          double want = adds ? before.at({row, column}) : 0;
          for (Index l = 0; l < k; ++l) want += a.at(ta, row, l) * b.at(tb, l, column);
          ASSERT_NEAR(c.data.at({row, column}), want, 1e-5) << m << " " << n << " " << k << " " << ta << tb << beyond;
        }
    }
  }
}

TEST(Factory, NamesWhatThereIs) {
  EXPECT_EQ(make_backend("reference", DType::bf16, 1)->name(), "reference");
  EXPECT_EQ(make_backend("auto", DType::f64, 1)->name(), "reference");
  EXPECT_NO_THROW(make_backend("auto", DType::f32, 1));
  try {
    make_backend("refrence", DType::f32, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "there is no backend 'refrence'; there are 'auto', 'reference', 'onednn' (did you mean 'reference'?)");
  }
  EXPECT_THROW(make_backend("reference", DType::i32, 1), Error);
  EXPECT_THROW(make_backend("onednn", DType::f64, 1), Error);
}

}  // namespace
}  // namespace partita::elementwise_test
