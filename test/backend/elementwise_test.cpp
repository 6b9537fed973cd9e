#include "../support/naive.hpp"
#include "partita/base/error.hpp"

#include <gtest/gtest.h>

namespace partita {
namespace {

using naive::Generator;

TEST(Relu, ClampsAndMasks) {
  const auto backend = make_reference_backend();
  Generator random(1);
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const Index width : {0, 1, 13}) {
      Box box(Shape{{'N', 2}, {'C', 3}, {'W', width}});
      const Tensor x = random.tensor(dtype, "NCW", box), dy = random.tensor(dtype, "NCW", box);
      const Tensor y = x.like(box), dx = x.like(box);
      if (width > 0) x.set(0, 0);
      backend->relu_forward(x, y, {});
      backend->relu_backward(y, dy, dx, {});
      for (Index i = 0; i < x.volume(); ++i) {
        EXPECT_EQ(y.get(i), std::max(x.get(i), 0.0));
        EXPECT_EQ(dx.get(i), x.get(i) > 0 ? dy.get(i) : 0.0);
      }
    }
}

TEST(Relu, KeepsWhatIsNotANumber) {
  const auto backend = make_reference_backend();
  const Box box(Shape{{'N', 1}, {'C', 1}});
  const Tensor x(DType::f32, "NC", box), y = x.like(box);
  x.set(0, std::numeric_limits<double>::quiet_NaN());
  backend->relu_forward(x, y, {});
  EXPECT_TRUE(std::isnan(y.get(0)));
}

Box rows_box(Index rows, Index channels) {
  Box box(2);
  box[0] = {5, 5 + rows};
  box[1] = {0, channels};
  return box;
}

TEST(CrossEntropy, IsItsDefinition) {
  const auto backend = make_reference_backend();
  Generator random(2);
  for (const Index rows : {0, 1, 7})
    for (const Index channels : {1, 2, 10}) {
      const Tensor x = random.tensor(DType::f64, "NC", rows_box(rows, channels)), dx = x.like(x.box());
      std::vector<std::int32_t> labels;
      for (Index n = 0; n < rows; ++n) labels.push_back(static_cast<std::int32_t>(random.draw(0, channels - 1)));
      double want = 2, hits = 3, loss = 2, correct = 3;  // both are added to
      backend->cross_entropy_forward(x, labels, loss, correct, {});
      backend->cross_entropy_backward(x, labels, 0.25, dx, {});
      for (Index n = 0; n < rows; ++n) {
        const Index label = labels[static_cast<std::size_t>(n)];
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
      EXPECT_NEAR(loss, want, 1e-12);
      EXPECT_EQ(correct, hits);
    }
}

TEST(CrossEntropy, IsStableAndPrefersTheFirstOfEquals) {
  const auto backend = make_reference_backend();
  const Tensor x(DType::f32, "NC", rows_box(2, 3)), dx = x.like(x.box());
  const std::array<double, 6> values{1e4, 1e4, -1e4, -2e4, -2e4, -2e4};
  for (Index i = 0; i < 6; ++i) x.set(i, values[static_cast<std::size_t>(i)]);
  double loss = 0, correct = 0;
  backend->cross_entropy_forward(x, std::vector<std::int32_t>{0, 1}, loss, correct, {});
  EXPECT_NEAR(loss, std::log(2.0) + std::log(3.0), 1e-12);
  EXPECT_EQ(correct, 1);
  backend->cross_entropy_backward(x, std::vector<std::int32_t>{0, 1}, 1, dx, {});
  EXPECT_NEAR(dx.get(0), -0.5, 1e-6);
  EXPECT_NEAR(dx.get(1), 0.5, 1e-6);
  EXPECT_EQ(dx.get(2), 0);
}

/// A padded row-major matrix as a tensor without channels: rows `leading` apart.
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
  const Tensor before = extract(c.data, c.data.box(), MemoryClass::workspace);
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
  const auto backend = make_reference_backend();
  Generator random(3);
  for (int i = 0; i < 200; ++i) {
    check_gemm(random, *backend, DType::f64, 1e-13);
    check_gemm(random, *backend, DType::f32, 1e-5);
    check_gemm(random, *backend, DType::bf16, 0.1);
    check_gemm(random, *backend, DType::f16, 0.02);
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
                 "there is no backend 'refrence'; there are 'auto', 'reference', 'onednn'; did you mean 'reference'?");
  }
  EXPECT_THROW(make_backend("reference", DType::i32, 1), Error);
  EXPECT_THROW(make_backend("onednn", DType::f64, 1), Error);
}

}  // namespace
}  // namespace partita
