// A large mean costs no accuracy: the kernels of a normalization against two passes in long double.
#include "partita/base/philox.hpp"
#include "test/support/cases.hpp"
#include "test/support/functors.hpp"
#include "test/support/norm_oracle.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <vector>

namespace partita::test::norm_mean_test {
namespace {

constexpr double epsilon = 1e-5;

/// All backends that compute in a type.
std::vector<std::unique_ptr<Backend>> backends_of(DType dtype) {
  auto all = all_types();
  if (dtype == DType::f32 && !onednn_version().empty()) all.push_back(make_onednn_backend(1));
  return all;
}

/// The memory of a tensor [N C H] is N H C.
struct Part {
  Part(DType type, const NormShape& of)
      : shape(of), dtype(type), box(Shape{{'N', of.samples}, {'C', of.channels}, {'H', of.points}}) {}
  Tensor tensor() const { return Tensor(dtype, "NCH", box); }
  Tensor channels() const { return Tensor(dtype, "C", Box(Shape{{'C', shape.channels}})); }
  /// Sets each element to f(number in the order N C H). Returns what the type made of it.
  template <class F>
  NormOracle::Values fill(const Tensor& to, F&& f) const {
    NormOracle::Values values(static_cast<std::size_t>(to.volume()));
    for (Index i = 0; i < to.volume(); ++i) {
      const Index at = to.box().dims() == 1 ? i : place(i);
      to.set(at, f(i));
      values[i] = to.get(at);
    }
    return values;
  }
  /// The place in memory of the element i in the order N C H.
  Index place(Index i) const {
    const Index n = i / (shape.points * shape.channels), h = i % shape.points;
    return (n * shape.points + h) * shape.channels + shape.channel(i);
  }

  NormShape shape;
  DType dtype;
  Box box;
};

/// What ranks have of the numbers of one channel, by a mean of each rank.
struct Shares {
  std::vector<Index> counts;
  std::function<double(std::size_t rank)> mean;
  std::vector<std::vector<double>> numbers() const {
    std::vector<std::vector<double>> all;
    Index i = 0;
    for (const Index count : counts) {
      auto& own = all.emplace_back(static_cast<std::size_t>(count));
      for (double& x : own) x = mean(all.size() - 1) + Random(3, 1).normal(i++);
    }
    return all;
  }
};

/// The mean and the variance of all numbers, by two passes.
std::pair<long double, long double> by_two_passes(const std::vector<std::vector<double>>& all) {
  long double count = 0, mean = 0, variance = 0;
  for (const auto& own : all) count += static_cast<long double>(own.size());
  for (const auto& own : all)
    for (const double x : own) mean += x / count;
  for (const auto& own : all)
    for (const double x : own) variance += (x - mean) * (x - mean) / count;
  return {mean, variance};
}

/// Each rank's moments (Backend::norm_moments).
std::vector<Tensor> moments_of(Backend& backend, const std::vector<std::vector<double>>& all) {
  Index count = 0;
  for (const auto& own : all) count += static_cast<Index>(own.size());
  std::vector<Tensor> moments;
  for (const auto& own : all) {
    const auto mine = static_cast<Index>(own.size());
    const Tensor x(DType::f64, "NC", Box(Shape{{'N', mine}, {'C', 1}}));
    for (Index i = 0; i < mine; ++i) x.set(i, own[i]);
    const auto numbers = [&](Index each) { return norm_numbers(x, each, 1, 1, MemoryClass::workspace); };
    const Tensor sums = numbers(2);
    backend.channel_sums(x, 1, sums, {});
    backend.norm_moments(x, sums, mine, count, moments.emplace_back(numbers(4)), {});
  }
  return moments;
}

/// Adds up moments in the order in which a collective may add them: of neighbors first, or one after the other.
Tensor added(const std::vector<Tensor>& moments, bool neighbors) {
  std::vector<Tensor> sums;
  for (const Tensor& of : moments) sums.push_back(extract(of, of.box(), MemoryClass::workspace, {}));
  for (std::size_t step = 1; step < sums.size(); step *= 2)
    for (std::size_t to = 0; to + step < sums.size(); to += 2 * step) {
      const std::size_t from = to + step;
      for (Index s = 0; s < 4; ++s) sums[to].set(s, sums[to].get(s) + sums[from].get(s));
    }
  if (neighbors) return sums[0];
  const Tensor sum = extract(moments.back(), moments.back().box(), MemoryClass::workspace, {});
  for (std::size_t from = moments.size() - 1; from-- > 0;)
    for (Index s = 0; s < 4; ++s) sum.set(s, sum.get(s) + moments[from].get(s));
  return sum;
}

/// Compares forward and backward with the oracle, for x = value(i).
template <class F>
void expect_as_two_passes(Backend& backend, const Part& part, F&& value) {
  const Tensor x = part.tensor(), dy = part.tensor(), y = part.tensor(), dx = part.tensor(), scale = part.channels(),
               shift = part.channels();
  const auto of_x = part.fill(x, value), of_dy = part.fill(dy, [](Index i) { return Random(2, 1).normal(i); });
  const auto of_scale = part.fill(scale, [](Index c) { return 1 + 0.1 * static_cast<double>(c); }),
             of_shift = part.fill(shift, [](Index c) { return 0.2 * static_cast<double>(c) - 0.3; });
  const NormShape& shape = part.shape;
  const NormOracle right(shape, of_x, of_dy, of_scale, of_shift, epsilon);
  const Tensor statistics = statistics_of(backend, x, shape.parts, shape.groups, epsilon);
  const Tensor sums = norm_numbers(x, 2, shape.parts, shape.channels, MemoryClass::workspace),
               grouped = norm_numbers(x, 2, shape.parts, shape.groups, MemoryClass::workspace);
  backend.norm_forward(x, statistics, scale, shift, false, y, {});
  backend.channel_gradient_sums(x, dy, statistics, sums, {});
  backend.group_channels(sums, scale, grouped, {});
  backend.norm_backward(x, dy, statistics, grouped, true, scale, shape.volume() / (shape.parts * shape.groups), dx, {},
                        {});
  for (Index i = 0; i < shape.volume(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool wide = part.dtype == DType::f64;
    ASSERT_NEAR(y.get(part.place(i)), static_cast<double>(right.y[at]), wide ? 1e-9 : right.y_bound(at)) << i;
    ASSERT_NEAR(dx.get(part.place(i)), static_cast<double>(right.dx[at]), wide ? 1e-9 : right.dx_bound(at)) << i;
  }
  for (Index c = 0; c < shape.channels; ++c) {
    double dscale = 0;
    for (Index n = 0; n < shape.parts; ++n) dscale += sums.at({1, n, c});
    ASSERT_NEAR(dscale, static_cast<double>(right.dscale[c]), 1e-8) << c;
  }
}

const std::vector<NormShape>& shapes() {
  static const std::vector<NormShape> all{
      {.samples = 3, .channels = 5, .points = 7, .parts = 1, .groups = 5},   // batch
      {.samples = 2, .channels = 6, .points = 9, .parts = 2, .groups = 3},   // group
      {.samples = 3, .channels = 4, .points = 11, .parts = 3, .groups = 1},  // layer
      {.samples = 2, .channels = 3, .points = 17, .parts = 2, .groups = 3},  // instance
      {.samples = 4, .channels = 8, .points = 700, .parts = 1, .groups = 8},
      {.samples = 1, .channels = 1, .points = 4099, .parts = 1, .groups = 1},
      {.samples = 1, .channels = 2, .points = 1, .parts = 1, .groups = 2},  // one element
  };
  return all;
}

/// Calls f(backend, part) for all backends, types and shapes.
template <class F>
void on_all(std::initializer_list<DType> dtypes, F&& f) {
  for (const DType dtype : dtypes)
    for (const auto& backend : backends_of(dtype))
      for (const NormShape& shape : shapes()) {
        SCOPED_TRACE(fmt::format("{} {} [{} {} {}] in {} parts of {} groups", backend->name(), name(dtype),
                                 shape.samples, shape.channels, shape.points, shape.parts, shape.groups));
        f(*backend, Part(dtype, shape));
      }
}

// The variance is right to (1 + p^2) 2^-93 mean^2 beside the rounding of double, on p ranks that have any shares.
// One of the elements from which the center comes may lie far from all others.
TEST(NormMean, OneElementMayLieFarAway) {
  const Random random(6, 2);
  for (const auto& backend : backends_of(DType::f64))
    for (const double far : {1e2, 1e4, -1e6}) {
      SCOPED_TRACE(fmt::format("{}: {} deviations away", backend->name(), far));
      std::vector<std::vector<double>> all(1);
      for (Index i = 0; i < 1000; ++i) all[0].push_back(1e3 + random.normal(i));
      all[0][0] += far;
      const auto [right_mean, right_variance] = by_two_passes(all);
      const Tensor x(DType::f64, "NC", Box(Shape{{'N', 1000}, {'C', 1}}));
      for (Index i = 0; i < 1000; ++i) x.set(i, all[0][i]);
      const Tensor steps = norm_numbers(x, 3, 1, 1, MemoryClass::workspace), at_once = steps.like(steps.box());
      backend->norm_statistics(moments_of(*backend, all)[0], 1000, 0.1, {}, steps, {});
      backend->channel_statistics(x, 0.1, {}, at_once, {});
      for (const Tensor& found : {steps, at_once}) {
        EXPECT_NEAR(found.get(0), static_cast<double>(right_mean), 1e-12);
        EXPECT_NEAR(found.get(1), static_cast<double>(right_variance), 1e-13 * static_cast<double>(right_variance));
      }
    }
}

TEST(NormMean, MomentsAddUpInAnyOrder) {
  const Random random(4, 1);
  const auto drawn = [&](Index ranks, Index most) {
    std::vector<Index> counts;
    for (Index r = 0; r < ranks; ++r) counts.push_back(static_cast<Index>(random.uniform(ranks + r) * (most + 1.0)));
    counts.front() = most;
    return counts;
  };
  for (const auto& backend : backends_of(DType::f64))
    for (const Index ranks : test::short_run() ? std::vector<Index>{1, 3, 7} : std::vector<Index>{1, 2, 3, 7, 64, 200})
      for (const Index most : {1, 12})
        for (const double mean : {0.0, 1e3, -1e6, 1e9})
          for (const double between : {0.0, 1e-3, 2.0}) {  // of the ranks' means
            SCOPED_TRACE(fmt::format("{}: {} ranks of up to {}, mean {}, other by {}", backend->name(), ranks, most,
                                     mean, between));
            const Shares shares{drawn(ranks, most), [&](std::size_t rank) {
                                  return mean * (1 + between * random.normal(static_cast<Index>(rank)));
                                }};
            const auto all = shares.numbers();
            const auto [right_mean, right_variance] = by_two_passes(all);
            const auto moments = moments_of(*backend, all);
            const Index count = std::accumulate(shares.counts.begin(), shares.counts.end(), Index(0));
            const long double of_mean = (1 + static_cast<long double>(ranks * ranks)) * 0x1p-93L;
            const auto error = static_cast<double>(1e-13L * right_variance + of_mean * right_mean * right_mean);
            for (const bool neighbors : {false, true}) {
              const Tensor found = norm_numbers(moments[0], 3, 1, 1, MemoryClass::workspace);
              backend->norm_statistics(added(moments, neighbors), count, epsilon, {}, found, {});
              EXPECT_NEAR(found.get(0), static_cast<double>(right_mean), 1e-15 * (1 + std::abs(mean)));
              EXPECT_NEAR(found.get(1), static_cast<double>(right_variance), error);
            }
          }
}

TEST(NormMean, ALargeOneCostsNoAccuracy) {
  on_all({DType::f64, DType::f32}, [](Backend& backend, const Part& part) {
    for (const auto& [mean, deviation] : {std::pair{0.0, 1.0}, {1e4, 1.0}, {-1e6, 1.0}, {3e4, 0.5}, {1e9, 1e3}}) {
      SCOPED_TRACE(fmt::format("mean {:g}, deviation {:g}", mean, deviation));
      expect_as_two_passes(backend, part,
                           [m = mean, d = deviation](Index i) { return m + d * Random(1, 1).normal(i); });
    }
  });
}

// The elements from which a center comes may be far from all others.
TEST(NormMean, NorDoesAFirstElementFarAway) {
  on_all({DType::f64, DType::f32}, [](Backend& backend, const Part& part) {
    for (const Index first : {Index(1), Index(3)})
      expect_as_two_passes(backend, part,
                           [&](Index i) { return (i % part.shape.points < first ? 0 : 1e6) + Random(1, 1).normal(i); });
  });
}

// In every type, y is the shift to the last bit.
TEST(NormMean, EqualElementsGiveTheShift) {
  on_all({DType::f64, DType::f32, DType::bf16, DType::f16}, [](Backend& backend, const Part& part) {
    for (const double value : {1000.1, -1e4, part.dtype == DType::f16 ? 6e4 : 1e10, 1.0 / 3, 0.0}) {
      const Tensor x = part.tensor(), y = part.tensor(), scale = part.channels(), shift = part.channels();
      part.fill(x, [&](Index) { return value; });
      part.fill(scale, [](Index c) { return 1 + 0.1 * static_cast<double>(c); });
      part.fill(shift, [](Index c) { return 0.2 * static_cast<double>(c) - 0.3; });
      const Tensor statistics = statistics_of(backend, x, part.shape.parts, part.shape.groups, epsilon);
      for (Index i = 0; i < norm_number(statistics, 0).volume(); ++i) {
        ASSERT_EQ(norm_number(statistics, 0).get(i), x.get(0));
        ASSERT_LE(norm_number(statistics, 1).get(i), 0x1p-90 * x.get(0) * x.get(0));
      }
      backend.norm_forward(x, statistics, scale, shift, false, y, {});
      for (Index i = 0; i < part.shape.volume(); ++i)
        ASSERT_EQ(y.get(part.place(i)), shift.get(part.shape.channel(i))) << value;
    }
  });
}

}  // namespace
}  // namespace partita::test::norm_mean_test
