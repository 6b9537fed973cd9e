#include "test/support/naive.hpp"

#include <gtest/gtest.h>

namespace partita {
namespace {

using naive::dot;
using naive::Generator;

/// Returns boxes of 2 to 5 dimensions that do not begin at the origin. Some are empty.
std::vector<Box> boxes() {
  std::vector<Box> all;
  for (int dims = 2; dims <= 5; ++dims)
    for (const Index channels : {1, 3, 8}) {
      Box box(dims);
      for (int d = 0; d < dims; ++d) box[d] = {d, d + 2 + d % 2};
      box[1] = {2, 2 + channels};
      all.push_back(box);
      box[dims - 1 == 1 ? 0 : dims - 1] = {1, 1};
      all.push_back(box);
    }
  return all;
}

constexpr std::array<std::string_view, 6> names{"", "", "NC", "NCW", "NCHW", "NCDHW"};

std::vector<double> reals(Generator& random, Index count) {
  std::vector<double> values;
  for (Index i = 0; i < count; ++i) values.push_back(random.real());
  return values;
}

double tolerance(DType dtype) {
  return dtype == DType::f64 ? 1e-14 : dtype == DType::f32 ? 1e-6 : dtype == DType::bf16 ? 2e-2 : 2e-3;
}

class Norm : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Norm, testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16));

TEST_P(Norm, SumsAreThoseOfEachChannel) {
  const auto backend = make_reference_backend();
  Generator random(1);
  for (const Box& box : boxes()) {
    SCOPED_TRACE(box.print());
    const Index channels = box.extent(1);
    const auto count = static_cast<std::size_t>(channels);
    const auto dims = names[static_cast<std::size_t>(box.dims())];
    const Tensor x = random.tensor(GetParam(), dims, box), dy = random.tensor(GetParam(), dims, box);
    const auto mean = reals(random, channels), by = reals(random, channels);
    std::vector<double> sum(count), square(count), of_dy(count), of_both(count), bias(count);
    const Tensor db = random.tensor(GetParam(), "F", Box(Shape{{'F', channels}}));
    for (std::size_t c = 0; c < count; ++c) bias[c] = db.get(static_cast<Index>(c));
    naive::for_elements(x, [&](const naive::At& at, Index i) {
      const auto c = static_cast<std::size_t>(at[1] - box[1].lo);
      sum[c] += x.get(i);
      square[c] += x.get(i) * x.get(i);
      of_dy[c] += dy.get(i);
      of_both[c] += dy.get(i) * (x.get(i) - mean[c]) * by[c];
    });
    std::vector<double> first(count, 9), second(count, 9), third(count, 9), fourth(count, 9);
    backend->channel_sums(x, {first, second}, {});
    backend->channel_gradient_sums(x, dy, mean, by, {third, fourth}, {});
    backend->bias_backward(dy, db, Write::add, {});
    for (std::size_t c = 0; c < count; ++c) {
      EXPECT_NEAR(first[c], sum[c], 1e-12);
      EXPECT_NEAR(second[c], square[c], 1e-12);
      EXPECT_NEAR(third[c], of_dy[c], 1e-12);
      EXPECT_NEAR(fourth[c], of_both[c], 1e-12);
      const double total = bias[c] + of_dy[c];
      EXPECT_NEAR(db.get(static_cast<Index>(c)), total, tolerance(GetParam()) * (1 + std::abs(total)));
    }
    backend->bias_backward(dy, db, Write::over, {});
    for (std::size_t c = 0; c < count; ++c)
      EXPECT_NEAR(db.get(static_cast<Index>(c)), of_dy[c], tolerance(GetParam()) * (1 + std::abs(of_dy[c])));
  }
}

TEST_P(Norm, AffineMapsAreThoseOfEachChannel) {
  const auto backend = make_reference_backend();
  Generator random(2);
  for (const Box& box : boxes()) {
    SCOPED_TRACE(box.print());
    const auto dims = names[static_cast<std::size_t>(box.dims())];
    const Tensor x = random.tensor(GetParam(), dims, box), dy = random.tensor(GetParam(), dims, box);
    const auto a = reals(random, box.extent(1)), b = reals(random, box.extent(1)), c = reals(random, box.extent(1));
    const Tensor y = x.like(box), dx = x.like(box);
    backend->channel_affine(x, a, b, y, {});
    backend->channel_affine_backward(x, dy, a, b, c, dx, {});
    naive::for_elements(x, [&](const naive::At& at, Index i) {
      const auto k = static_cast<std::size_t>(at[1] - box[1].lo);
      EXPECT_NEAR(y.get(i), a[k] * x.get(i) + b[k], tolerance(GetParam()));
      EXPECT_NEAR(dx.get(i), a[k] * dy.get(i) + b[k] * x.get(i) + c[k], tolerance(GetParam()));
    });
  }
}

/// Batch normalization built from the backend's kernels, as a layer does it on one rank, with the loss <y, dy>.
struct BatchNorm {
  Backend& backend;
  std::vector<double> gamma, beta;
  double epsilon = 1e-3;
  std::vector<double> mean, by;

  double loss(const Tensor& x, const Tensor& dy) {
    const auto count = gamma.size();
    const double rows = static_cast<double>(x.volume()) / static_cast<double>(count);
    std::vector<double> first(count), second(count), scale(count), shift(count);
    backend.channel_sums(x, {first, second}, {});
    mean.resize(count);
    by.resize(count);
    for (std::size_t c = 0; c < count; ++c) {
      mean[c] = first[c] / rows;
      by[c] = 1 / std::sqrt(second[c] / rows - mean[c] * mean[c] + epsilon);
      scale[c] = gamma[c] * by[c];
      shift[c] = beta[c] - mean[c] * scale[c];
    }
    const Tensor y = x.like(x.box());
    backend.channel_affine(x, scale, shift, y, {});
    return dot(y, dy);
  }

  Tensor gradient(const Tensor& x, const Tensor& dy) {
    const auto count = gamma.size();
    const double rows = static_cast<double>(x.volume()) / static_cast<double>(count);
    std::vector<double> first(count), second(count), a(count), b(count), c(count);
    backend.channel_gradient_sums(x, dy, mean, by, {first, second}, {});
    for (std::size_t i = 0; i < count; ++i) {
      a[i] = gamma[i] * by[i];
      b[i] = -a[i] * by[i] * second[i] / rows;
      c[i] = -a[i] * first[i] / rows - b[i] * mean[i];
    }
    const Tensor dx = x.like(x.box());
    backend.channel_affine_backward(x, dy, a, b, c, dx, {});
    return dx;
  }
};

// The five kernels suffice for batch normalization: its gradient equals the difference quotient of its loss.
TEST(BatchNormalization, GradientIsTheDifferenceQuotient) {
  const auto backend = make_reference_backend();
  Generator random(3);
  const Box box(Shape{{'N', 3}, {'C', 2}, {'H', 3}, {'W', 2}});
  const Tensor x = random.tensor(DType::f64, "NCHW", box), dy = random.tensor(DType::f64, "NCHW", box);
  BatchNorm norm{*backend, {0.7, -1.3}, {0.1, 0.2}, 1e-3, {}, {}};
  norm.loss(x, dy);
  const Tensor dx = norm.gradient(x, dy);
  const double h = 1e-5;
  for (Index i = 0; i < x.volume(); ++i) {
    const double value = x.get(i);
    x.set(i, value + h);
    const double above = norm.loss(x, dy);
    x.set(i, value - h);
    const double below = norm.loss(x, dy);
    x.set(i, value);
    EXPECT_NEAR(dx.get(i), (above - below) / (2 * h), 1e-7);
  }
}

}  // namespace
}  // namespace partita
