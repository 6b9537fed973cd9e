// What launchers do for many rows and columns: one element or a pack of them at once, packs that the columns do not
// fill, sums in one block or several, groups that a thread or a block combines.
#include "src/backend/common/moments.hpp"
#include "test/support/cases.hpp"
#include "test/support/entropy.hpp"
#include "test/support/functors.hpp"
#include "test/support/naive.hpp"

#include <gtest/gtest.h>

namespace partita::test::launcher_test {
namespace {

// With 2003 rows and 31 columns or more, more blocks share a sum than a tile has rows.
constexpr std::array<Index, 5> rows{1, 255, 257, 2003, 100003};
constexpr std::array<Index, 7> columns{1, 3, 31, 33, 64, 1000, 2048};

class Launcher : public testing::TestWithParam<std::tuple<DType, Runner>> {
 protected:
  static DType dtype() { return std::get<0>(GetParam()); }
  /// The largest tensor in this run: an emulated GPU takes 10 to 100 ns for an element.
  static Index most() {
    if (std::get<1>(GetParam()) == Runner::card) return Index{1} << 40;
    return sanitized ? 1 << 12 : lengthy() ? 1 << 24 : 1 << 17;
  }
  std::unique_ptr<Backend> functors = make_functors(std::get<1>(GetParam()));

  /// Calls check(rows, columns) for all sizes that this run has time for.
  template <class Check>
  void each_size(Check&& check) const {
    for (const Index r : rows)
      for (const Index c : columns) {
        if (r * c > most()) continue;
        SCOPED_TRACE(fmt::format("{} rows, {} columns", r, c));
        check(r, c);
      }
  }
  static Tensor matrix(Index r, Index c) { return tensor(dtype(), "NC", Box(Shape{{'N', r}, {'C', c}})); }
  static Tensor vector(DType of, Index n) { return tensor(of, "F", Box(Shape{{'F', n}})); }
  /// Small whole numbers, which every type holds. Their sums are exact in double.
  static double value(Index row, Index column) { return static_cast<double>((row * 7 + column * 3) % 11 - 5); }
  static Tensor filled(Index r, Index c) {
    const Tensor x = matrix(r, c);
    for (Index i = 0; i < r * c; ++i) x.set(i, value(i / c, i % c));
    return x;
  }
};
INSTANTIATE_TEST_SUITE_P(DTypes, Launcher,
                         testing::Combine(testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                                          testing::ValuesIn(runners())));

TEST_P(Launcher, VisitsEveryElementOnce) {
  each_size([&](Index r, Index c) {
    const Tensor x = filled(r, c), y = matrix(r, c);
    functors->activation_forward({Activation::Kind::relu}, x, y, {});
    functors->axpby(2, x, 1, y, {});
    for (Index i = 0; i < r * c; ++i) {
      const double v = value(i / c, i % c);
      ASSERT_EQ(y.get(i), 2 * v + std::max(v, 0.0)) << "element " << i;
    }
  });
}

TEST_P(Launcher, SumsTheRowsOfEachColumn) {
  each_size([&](Index r, Index c) {
    const Tensor x = filled(r, c), sums = norm_numbers(x, 2, 1, c, MemoryClass::workspace);
    functors->channel_sums(x, c, sums, {});
    for (Index column = 0; column < c; ++column) {
      double sum = 0, squares = 0;
      for (Index row = 0; row < r; ++row) {
        const double d = value(row, column) - center_of_sums(r, [&](Index i) { return value(i, column); });
        sum += d, squares += d * d;
      }
      ASSERT_EQ(sums.get(column), sum) << "column " << column;
      ASSERT_EQ(sums.get(c + column), squares) << "column " << column;
    }
  });
}

TEST_P(Launcher, EndsTheSumsOfEachColumnAsStatistics) {
  each_size([&](Index r, Index c) {
    const Tensor x = filled(r, c), found = norm_numbers(x, 3, 1, c, MemoryClass::workspace);
    const Tensor mean = vector(DType::f32, c), variance = vector(DType::f32, c);
    for (Index column = 0; column < c; ++column) mean.set(column, 8);
    functors->channel_statistics(x, 0.5, {mean, variance, 0.25, 0.5}, found, {});
    for (Index column = 0; column < c; ++column) {
      double sum = 0, squares = 0;
      for (Index row = 0; row < r; ++row) sum += value(row, column), squares += value(row, column) * value(row, column);
      const auto n = static_cast<double>(r);
      const double m = sum / n, v = squares / n - m * m;
      ASSERT_NEAR(found.get(column), m, 1e-12) << "column " << column;
      ASSERT_NEAR(found.get(c + column), v, 1e-11) << "column " << column;
      ASSERT_NEAR(found.get(2 * c + column), 1 / std::sqrt(v + 0.5), 1e-11) << "column " << column;
      ASSERT_NEAR(mean.get(column), 2 + 0.5 * m, 1e-5) << "column " << column;
      ASSERT_NEAR(variance.get(column), 0.5 * v * unbiased(r), 1e-4) << "column " << column;
    }
  });
}

// The loss takes the largest number of each row, and a sum over it.
TEST_P(Launcher, CombinesTheColumnsOfEachRow) {
  each_size([&](Index r, Index c) {
    const Tensor x = filled(r, c), labels = vector(DType::i32, r), result = vector(DType::f64, 2);
    double loss = 0, right = 0;
    for (Index row = 0; row < r; ++row) {
      double sum = 0;
      for (Index column = 0; column < c; ++column) sum += std::exp(value(row, column));
      labels.set(row, static_cast<double>(row % c));
      loss += std::log(sum) - value(row, row % c);
    }
    test::cross_entropy(*functors, x, labels, 1, result);
    for (Index row = 0; row < r; ++row) {
      double largest = -6;
      Index at = 0;
      for (Index column = 0; column < c; ++column)
        if (value(row, column) > largest) largest = value(row, column), at = column;
      right += value(row, row % c) == largest && at == row % c ? 1 : 0;
    }
    ASSERT_NEAR(result.get(0), loss, 1e-9 * (1 + loss));
    ASSERT_GE(result.get(1), right);
  });
}

}  // namespace
}  // namespace partita::test::launcher_test
