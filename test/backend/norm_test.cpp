#include "test/support/functors.hpp"
#include "test/support/naive.hpp"
#include "test/support/norm_oracle.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>

namespace partita::norm_test {
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

/// The parts of a tensor: all of it, or its samples.
std::vector<Index> parts_of(const Box& box) { return {1, box.extent(0)}; }

/// The numbers of channels or groups that statistics may have.
std::vector<Index> groups_of(Index channels) {
  std::vector<Index> all{channels};
  if (channels > 1) all.push_back(1);
  if (channels % 2 == 0 && channels > 2) all.push_back(channels / 2);
  return all;
}

/// Drawn numbers of each part and channel (or group), the third of which is positive.
Tensor drawn_numbers(Generator& random, const Tensor& x, Index numbers, Index parts, Index channels) {
  const Tensor drawn = norm_numbers(x, numbers, parts, channels, MemoryClass::workspace);
  for (Index i = 0; i < drawn.volume(); ++i)
    drawn.set(i, i < 2 * parts * channels ? random.real() : 0.5 + std::abs(random.real()));
  return drawn;
}

/// The number s of the part and group to which the channel at `at` belongs.
double number(const Tensor& numbers, Index s, const naive::At& at, const Box& box) {
  const Index parts = numbers.extent('N'), groups = numbers.extent('C');
  return numbers.at({s, parts == 1 ? 0 : at[0] - box[0].lo, (at[1] - box[1].lo) / (box.extent(1) / groups)});
}

double tolerance(DType dtype) {
  return dtype == DType::f64 ? 1e-14 : dtype == DType::f32 ? 1e-6 : dtype == DType::bf16 ? 2e-2 : 2e-3;
}

class Norm : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Norm, testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16));

TEST_P(Norm, SumsAreThoseOfEachPartAndChannel) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    Generator random(1);
    for (const Box& box : boxes())
      for (const Index parts : parts_of(box)) {
        SCOPED_TRACE(fmt::format("{} in {} parts", box.print(), parts));
        const Index channels = box.extent(1);
        const auto dims = names[box.dims()];
        const Tensor x = random.tensor(GetParam(), dims, box), dy = random.tensor(GetParam(), dims, box);
        for (const Index groups : groups_of(channels)) {
          const Tensor statistics = drawn_numbers(random, x, 3, parts, groups),
                       centers = norm_numbers(x, 1, parts, groups, MemoryClass::workspace);
          std::vector<std::map<Index, double>> elements(static_cast<std::size_t>(centers.volume()));
          naive::for_elements(x, [&](const naive::At& at, Index i) {
            const Index part = parts == 1 ? 0 : at[0] - box[0].lo, group = (at[1] - box[1].lo) / (channels / groups);
            elements[part * groups + group][i] = x.get(i);
          });
          for (std::size_t k = 0; k < elements.size(); ++k) {  // the median of three that are evenly spread
            const auto count = static_cast<std::ptrdiff_t>(elements[k].size());
            if (count == 0) continue;
            std::array<double, 3> three{};
            for (std::ptrdiff_t i = 0; i < 3; ++i) three[i] = std::next(elements[k].begin(), i * count / 3)->second;
            std::sort(three.begin(), three.end());
            centers.set(static_cast<Index>(k), three[1]);
          }
          const Tensor sums = norm_numbers(x, 2, parts, channels, MemoryClass::workspace),
                       gradient = sums.like(sums.box());
          const Tensor sum = sums.like(sums.box()), of_dy = sums.like(sums.box());
          const auto add = [&](const Tensor& to, Index s, const naive::At& at, double value) {
            const Index i = to.offset({s, parts == 1 ? 0 : at[0] - box[0].lo, at[1] - box[1].lo});
            to.set(i, to.get(i) + value);
          };
          naive::for_elements(x, [&](const naive::At& at, Index i) {
            const double xhat = (x.get(i) - number(statistics, 0, at, box)) * number(statistics, 2, at, box);
            const double d = x.get(i) - number(centers, 0, at, box);
            add(sum, 0, at, d);
            add(sum, 1, at, d * d);
            add(of_dy, 0, at, dy.get(i));
            add(of_dy, 1, at, dy.get(i) * xhat);
          });
          backend->channel_sums(x, groups, sums, {});
          backend->channel_gradient_sums(x, dy, statistics, gradient, {});
          for (Index i = 0; i < sums.volume(); ++i) {
            EXPECT_NEAR(sums.get(i), sum.get(i), 1e-12);
            EXPECT_NEAR(gradient.get(i), of_dy.get(i), 1e-12);
          }
        }
      }
  }
}

// Statistics at once are those in steps, to the last bit.
TEST_P(Norm, StatisticsAtOnceAreThoseInSteps) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    Generator random(6);
    for (const Box& box : boxes())
      for (const Index parts : parts_of(box)) {
        SCOPED_TRACE(fmt::format("{} in {} parts", box.print(), parts));
        const Tensor x = random.tensor(GetParam(), names[box.dims()], box);
        const Index channels = box.extent(1), count = x.volume() / std::max<Index>(parts * channels, 1);
        const auto numbers = [&](Index each) { return norm_numbers(x, each, parts, channels, MemoryClass::workspace); };
        const Tensor sums = numbers(2), moments = numbers(4), in_steps = numbers(3), at_once = numbers(3);
        std::vector<Tensor> running;
        for (int i = 0; i < 4; ++i) running.push_back(test::tensor(DType::f32, "C", Box(Shape{{'C', channels}})));
        for (const Tensor& each : running)
          for (Index c = 0; c < channels; ++c) each.set(c, 0.5);
        const auto to = [&](std::size_t first) {
          return parts == 1 ? RunningStatistics{running[first], running[first + 1], 0.75, 0.25} : RunningStatistics();
        };
        backend->channel_sums(x, channels, sums, {});
        backend->norm_moments(x, sums, count, count, moments, {});
        backend->norm_statistics(moments, count, 0.1, to(0), in_steps, {});
        backend->channel_statistics(x, 0.1, to(2), at_once, {});
        for (Index i = 0; i < at_once.volume(); ++i) EXPECT_EQ(at_once.get(i), in_steps.get(i));
        for (Index c = 0; c < channels; ++c)
          for (std::size_t which : {0, 1}) EXPECT_EQ(running[2 + which].get(c), running[which].get(c));
      }
  }
}

TEST_P(Norm, BiasesAreAddedToAndSummedOverEachChannel) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    Generator random(5);
    for (const Box& box : boxes()) {
      SCOPED_TRACE(box.print());
      const Tensor dy = random.tensor(GetParam(), names[box.dims()], box);
      const Tensor db = random.tensor(GetParam(), "F", Box(Shape{{'F', box.extent(1)}}));
      std::vector<double> sums(static_cast<std::size_t>(box.extent(1))), bias(sums);
      for (std::size_t c = 0; c < bias.size(); ++c) bias[c] = db.get(static_cast<Index>(c));
      naive::for_elements(dy, [&](const naive::At& at, Index i) { sums[at[1] - box[1].lo] += dy.get(i); });
      backend->bias_backward(dy, db, Write::add, {});
      for (std::size_t c = 0; c < sums.size(); ++c) {
        const double total = bias[c] + sums[c];
        EXPECT_NEAR(db.get(static_cast<Index>(c)), total, tolerance(GetParam()) * (1 + std::abs(total)));
      }
      const Tensor y = extract(dy, box, MemoryClass::workspace, {});
      for (std::size_t c = 0; c < sums.size(); ++c) bias[c] = db.get(static_cast<Index>(c));
      backend->bias_forward(db, y, {});
      naive::for_elements(y, [&](const naive::At& at, Index i) {
        const double expected = dy.get(i) + bias[at[1] - box[1].lo];
        EXPECT_NEAR(y.get(i), expected, tolerance(GetParam()) * (1 + std::abs(expected)));
      });
      backend->bias_backward(dy, db, Write::over, {});
      for (std::size_t c = 0; c < sums.size(); ++c)
        EXPECT_NEAR(db.get(static_cast<Index>(c)), sums[c], tolerance(GetParam()) * (1 + std::abs(sums[c])));
    }
  }
}

TEST_P(Norm, ForwardAndBackwardAreTheirFormulas) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    Generator random(2);
    for (const Box& box : boxes())
      for (const Index parts : parts_of(box))
        for (const Index groups : groups_of(box.extent(1)))
          for (const bool scaled : {false, true}) {
            SCOPED_TRACE(fmt::format("{} in {} parts and {} groups", box.print(), parts, groups));
            const auto dims = names[box.dims()];
            const Tensor x = random.tensor(GetParam(), dims, box), dy = random.tensor(GetParam(), dims, box);
            const Box channels(Shape{{'C', box.extent(1)}});
            const Tensor scale = random.tensor(GetParam(), "C", channels),
                         shift = random.tensor(GetParam(), "C", channels);
            const Tensor statistics = drawn_numbers(random, x, 3, parts, groups),
                         sums = drawn_numbers(random, x, 2, parts, groups), y = x.like(box), dx = x.like(box);
            constexpr Index count = 7;
            backend->norm_forward(x, statistics, scale, shift, false, y, {});
            backend->norm_backward(x, dy, statistics, sums, scaled, scale, count, dx, {}, {});
            naive::for_elements(x, [&](const naive::At& at, Index i) {
              const double g = scale.get(at[1] - box[1].lo), r = number(statistics, 2, at, box);
              const double xhat = (x.get(i) - number(statistics, 0, at, box)) * r;
              const double rest = (number(sums, 0, at, box) + xhat * number(sums, 1, at, box)) / count;
              EXPECT_NEAR(y.get(i), g * xhat + shift.get(at[1] - box[1].lo), 4 * tolerance(GetParam()));
              EXPECT_NEAR(dx.get(i), r * (g * dy.get(i) - (scaled ? 1 : g) * rest), 4 * tolerance(GetParam()));
            });
          }
  }
}

TEST_P(Norm, ReluIsComputedWithIt) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    Generator random(6);
    for (const Box& box : boxes())
      for (const Index parts : parts_of(box)) {
        SCOPED_TRACE(fmt::format("{} in {} parts", box.print(), parts));
        const auto dims = names[box.dims()];
        const Index groups = box.extent(1);
        const Tensor x = random.tensor(GetParam(), dims, box), dy = random.tensor(GetParam(), dims, box);
        const Box channels(Shape{{'C', groups}});
        const Tensor scale = random.tensor(GetParam(), "C", channels), shift = random.tensor(GetParam(), "C", channels);
        const Tensor statistics = drawn_numbers(random, x, 3, parts, groups),
                     totals = drawn_numbers(random, x, 2, parts, groups);
        const Tensor y = x.like(box), apart = x.like(box), passed = x.like(box);
        backend->norm_forward(x, statistics, scale, shift, true, y, {});
        backend->norm_forward(x, statistics, scale, shift, false, apart, {});
        for (Index i = 0; i < y.volume(); ++i) {
          ASSERT_EQ(y.get(i), std::max(apart.get(i), 0.0));
          passed.set(i, y.get(i) > 0 ? dy.get(i) : 0);
        }
        std::vector<Tensor> sums, dx;
        for (const MaskedGradient& gradient : {MaskedGradient(dy, y), MaskedGradient(passed)}) {
          sums.push_back(norm_numbers(x, 2, parts, groups, MemoryClass::workspace));
          dx.push_back(x.like(box));
          backend->channel_gradient_sums(x, gradient, statistics, sums.back(), {});
          backend->norm_backward(x, gradient, statistics, totals, false, scale, 7, dx.back(), {}, {});
        }
        for (Index i = 0; i < sums[0].volume(); ++i)
          ASSERT_NEAR(sums[0].get(i), sums[1].get(i), 1e-13 * (1 + std::abs(sums[1].get(i))));
        for (Index i = 0; i < dx[0].volume(); ++i)
          ASSERT_NEAR(dx[0].get(i), dx[1].get(i), tolerance(GetParam()) * (1 + std::abs(dx[1].get(i))));
      }
  }
}

TEST(NormNumbers, GroupsAndPartsAddUp) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    Generator random(4);
    for (const Index parts : {0, 1, 3})
      for (const Index channels : {0, 1, 6}) {
        const Tensor x = test::tensor(DType::f64, "NC", Box(Shape{{'N', parts}, {'C', channels}}));
        const Tensor sums = drawn_numbers(random, x, 2, parts, channels);
        const Tensor scale = random.tensor(DType::f32, "C", Box(Shape{{'C', channels}})),
                     total = scale.like(DType::f64);
        for (const Index groups : {channels, channels == 0 ? 0 : std::max<Index>(channels / 3, 1)}) {
          for (const bool scales : {false, true}) {
            const Tensor grouped = norm_numbers(x, 2, parts, groups, MemoryClass::workspace);
            backend->group_channels(sums, scales ? scale : Tensor(), grouped, {});
            const Index size = groups == 0 ? 1 : channels / groups;
            for (Index i = 0; i < grouped.volume(); ++i) {
              double sum = 0;
              for (Index k = 0; k < size; ++k)
                sum += sums.get(i * size + k) * (scales ? scale.get(i % groups * size + k) : 1);
              EXPECT_NEAR(grouped.get(i), sum, 1e-14);
            }
          }
        }
        const Tensor other = total.like(total.box());
        for (const Write write : {Write::over, Write::add}) {
          for (Index c = 0; c < channels; ++c) total.set(c, 5), other.set(c, -7);
          backend->norm_weight_gradients({sums, total, other, write}, {});
          for (Index c = 0; c < channels; ++c) {
            double of_scale = write == Write::add ? 5 : 0, of_shift = write == Write::add ? -7 : 0;
            for (Index n = 0; n < parts; ++n) of_scale += sums.at({1, n, c}), of_shift += sums.at({0, n, c});
            EXPECT_NEAR(total.get(c), of_scale, 1e-14);
            EXPECT_NEAR(other.get(c), of_shift, 1e-14);
          }
        }
      }
  }
}

// With dx, if the layer's backward computes both.
TEST_P(Norm, WeightGradientsComeWithDx) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    Generator random(9);
    for (const Box& box : boxes())
      for (const Index parts : parts_of(box))
        for (const DType dtype : {GetParam(), DType::f64})
          for (const Write write : {Write::over, Write::add}) {
            SCOPED_TRACE(fmt::format("{} in {} parts, {}", box.print(), parts, name(dtype)));
            const Index channels = box.extent(1);
            const Tensor x = random.tensor(GetParam(), names[box.dims()], box), apart = x.like(box), dx = x.like(box);
            const Tensor scale = random.tensor(GetParam(), "C", Box(Shape{{'C', channels}}));
            const Tensor statistics = drawn_numbers(random, x, 3, parts, channels),
                         sums = drawn_numbers(random, x, 2, parts, channels);
            std::vector<Tensor> dw;
            for (int i = 0; i < 4; ++i) dw.push_back(test::tensor(dtype, "C", scale.box()));
            for (const Tensor& each : dw)
              for (Index c = 0; c < channels; ++c) each.set(c, 0.75);
            backend->norm_weight_gradients({sums, dw[0], dw[1], write}, {});
            backend->norm_backward(x, x, statistics, sums, false, scale, 7, apart, {}, {});
            backend->norm_backward(x, x, statistics, sums, false, scale, 7, dx, {sums, dw[2], dw[3], write}, {});
            for (Index i = 0; i < x.volume(); ++i) EXPECT_EQ(dx.get(i), apart.get(i));
            for (Index c = 0; c < channels; ++c)
              for (std::size_t which : {0, 1}) EXPECT_EQ(dw[2 + which].get(c), dw[which].get(c));
          }
  }
}

TEST(NormNumbers, RunningStatisticsAdvance) {
  for (const auto& backend : test::all_types())
    for (const DType dtype : {DType::f64, DType::f32})
      for (const Index count : {6, 1, 0}) {
        SCOPED_TRACE(fmt::format("{}, {}, {} elements", backend->name(), name(dtype), count));
        Generator random(8);
        const Tensor x = random.tensor(DType::f64, "NC", Box(Shape{{'N', 1}, {'C', 5}}));
        const Tensor moments = norm_numbers(x, 4, 1, 5, MemoryClass::workspace),
                     found = norm_numbers(x, 3, 1, 5, MemoryClass::workspace);
        for (Index c = 0; c < 5; ++c) {  // of numbers with mean 0.3 c and variance 2
          const double n = static_cast<double>(count), mean = 0.3 * static_cast<double>(c);
          moments.set(c, n * mean);
          moments.set(c + 5, 0);
          moments.set(c + 10, n * (2 + mean * mean));
          moments.set(c + 15, 0);
        }
        const Tensor mean = random.tensor(dtype, "C", Box(Shape{{'C', 5}})), variance = mean.like(mean.box());
        std::vector<double> before;
        for (Index c = 0; c < 5; ++c) before.push_back(mean.get(c)), variance.set(c, 1);
        backend->norm_statistics(moments, count, 0.25, {mean, variance, 0.75, 0.5}, found, {});
        for (Index c = 0; c < 5; ++c) {
          const double of_mean = count == 0 ? 0 : 0.3 * static_cast<double>(c), of_variance = count == 0 ? 1 : 2;
          EXPECT_NEAR(mean.get(c), 0.75 * before[static_cast<std::size_t>(c)] + 0.5 * of_mean, 1e-6);
          EXPECT_NEAR(variance.get(c), 0.75 + 0.5 * of_variance * (count == 6 ? 6.0 / 5 : 1), 1e-6);
        }
      }
}

// The mean of d^2 may be below the square of the mean of d, by rounding; then the variance is 0.
TEST(NormNumbers, StatisticsAreTheirFormulas) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    const Tensor x = test::tensor(DType::f64, "NC", Box(Shape{{'N', 2}, {'C', 3}}));
    const Tensor sums = norm_numbers(x, 2, 2, 3, MemoryClass::workspace),
                 moments = norm_numbers(x, 4, 2, 3, MemoryClass::workspace),
                 found = norm_numbers(x, 3, 2, 3, MemoryClass::workspace);
    const std::array first{6.0, 0.0, -3.0, 9.0, 3.0, 0.3}, second{18.0, 6.0, 3.0, 26.0, 3.0 - 1e-15, 12.0};
    for (Index i = 0; i < 6; ++i) {
      sums.set(i, first[i]);
      sums.set(i + 6, second[i]);
      x.set(i, static_cast<double>(i) - 2);  // the center: each part and channel has one element
    }
    for (const Index count : {3, 0}) {
      backend->norm_moments(x, sums, count, count, moments, {});
      backend->norm_statistics(moments, count, 0.25, {}, found, {});
      for (Index i = 0; i < 6; ++i) {
        const double d = count == 0 ? 0 : first[i] / 3;
        const double variance = count == 0 ? 1 : std::max(second[i] / 3 - d * d, 0.0);
        EXPECT_DOUBLE_EQ(found.get(i), count == 0 ? 0 : x.get(i) + d);
        EXPECT_NEAR(found.get(i + 6), variance, 1e-15);
        EXPECT_GE(found.get(i + 6), 0);
        EXPECT_NEAR(found.get(i + 12), 1 / std::sqrt(variance + 0.25), 1e-15);
      }
    }
  }
}

TEST(NormNumbers, GivenStatisticsAreTakenAsTheyAre) {
  for (const auto& backend : test::all_types())
    for (const DType dtype : {DType::f64, DType::f32}) {
      SCOPED_TRACE(backend->name());
      const Tensor mean = test::tensor(dtype, "C", Box(Shape{{'C', 3}})), variance = mean.like(mean.box());
      for (Index c = 0; c < 3; ++c) {
        mean.set(c, static_cast<double>(c) - 1);
        variance.set(c, static_cast<double>(c * c));
      }
      const Tensor found = norm_numbers(mean, 3, 1, 3, MemoryClass::workspace);
      backend->given_statistics(mean, variance, 0.25, found, {});
      for (Index c = 0; c < 3; ++c) {
        EXPECT_EQ(found.get(c), mean.get(c));
        EXPECT_EQ(found.get(c + 3), variance.get(c));
        EXPECT_DOUBLE_EQ(found.get(c + 6), 1 / std::sqrt(variance.get(c) + 0.25));
      }
    }
}

TEST(NormNumbers, ThereMayBeNoChannels) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    const Tensor x = test::tensor(DType::f32, "NCH", Box(Shape{{'N', 2}, {'C', 0}, {'H', 3}})), y = x.like(x.box());
    const Tensor none = test::tensor(DType::f32, "C", Box(Shape{{'C', 0}}));
    const Tensor sums = norm_numbers(x, 2, 1, 0, MemoryClass::workspace),
                 moments = norm_numbers(x, 4, 1, 0, MemoryClass::workspace),
                 of = norm_numbers(x, 3, 1, 0, MemoryClass::workspace);
    backend->channel_sums(x, 0, sums, {});
    backend->norm_moments(x, sums, 6, 6, moments, {});
    backend->channel_statistics(x, 0.1, {}, of, {});
    backend->norm_statistics(moments, 6, 0.1, {}, of, {});
    backend->norm_forward(x, of, none, none, false, y, {});
    backend->channel_gradient_sums(x, y, of, sums, {});
    backend->norm_backward(x, y, of, sums, false, none, 6, y, {}, {});
    EXPECT_EQ(y.volume(), 0);
  }
}

/// Batch normalization built from the backend's kernels, as a layer does it on one rank, with the loss <y, dy>.
struct BatchNorm {
  Backend& backend;
  Tensor scale, shift, statistics;

  double loss(const Tensor& x, const Tensor& dy) {
    const Tensor y = x.like(x.box());
    statistics = test::statistics_of(backend, x, 1, x.extent('C'), 1e-3);
    backend.norm_forward(x, statistics, scale, shift, false, y, {});
    return dot(y, dy);
  }

  Tensor gradient(const Tensor& x, const Tensor& dy) const {
    const Tensor sums = norm_numbers(x, 2, 1, x.extent('C'), MemoryClass::workspace), dx = x.like(x.box());
    backend.channel_gradient_sums(x, dy, statistics, sums, {});
    backend.norm_backward(x, dy, statistics, sums, false, scale, x.volume() / x.extent('C'), dx, {}, {});
    return dx;
  }
};

// The kernels suffice for batch normalization: its gradient equals the difference quotient of its loss.
TEST(BatchNormalization, GradientIsTheDifferenceQuotient) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    Generator random(3);
    const Box box(Shape{{'N', 3}, {'C', 2}, {'H', 3}, {'W', 2}}), channels(Shape{{'C', 2}});
    const Tensor x = random.tensor(DType::f64, "NCHW", box), dy = random.tensor(DType::f64, "NCHW", box);
    BatchNorm norm{*backend, random.tensor(DType::f64, "C", channels), random.tensor(DType::f64, "C", channels), {}};
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
}

}  // namespace
}  // namespace partita::norm_test
