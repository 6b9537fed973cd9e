// The order of cuBLASLt's matrices, checked by multiplying as it does.
#include "src/backend/gpu/cuda/libraries/product.hpp"

#include "partita/backend/backend.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace partita::cuda::product_test {
namespace {

/// An element of op(matrix), where the matrix is stored by columns.
double element(const std::vector<double>& data, const ColumnMajor::Matrix& matrix, Index row, Index column) {
  if (matrix.transpose) std::swap(row, column);
  EXPECT_LT(row, matrix.rows);
  EXPECT_LT(column, matrix.columns);
  return data[column * matrix.step + row];
}

TEST(ColumnMajorProduct, IsTheProductByRows) {
  std::mt19937 random(7);
  const auto draw = [&](Index lo, Index hi) { return lo + static_cast<Index>(random()) % (hi - lo + 1); };
  const auto backend = make_reference_backend();
  for (int i = 0; i < 200; ++i) {
    ProductCall call{
        .transpose_a = draw(0, 1), .transpose_b = draw(0, 1), .m = draw(1, 7), .n = draw(1, 7), .k = draw(1, 7)};
    call.lda = (call.transpose_a != 0 ? call.m : call.k) + draw(0, 3);
    call.ldb = (call.transpose_b != 0 ? call.k : call.n) + draw(0, 3);
    call.ldc = call.n + draw(0, 3);
    const auto array = [&] {
      std::vector<double> values(100);
      for (double& value : values) value = static_cast<double>(draw(-9, 9));
      return values;
    };
    const std::vector<double> a = array(), b = array();
    std::vector<double> c = array(), expected = c;
    backend->gemm(DType::f64, call.transpose_a != 0, call.transpose_b != 0, call.m, call.n, call.k, 1, a.data(),
                  call.lda, b.data(), call.ldb, 0, expected.data(), call.ldc, {});
    const ColumnMajor as = column_major(call);
    for (Index column = 0; column < as.result.columns; ++column)
      for (Index row = 0; row < as.result.rows; ++row) {
        double sum = 0;
        for (Index k = 0; k < call.k; ++k) sum += element(b, as.first, row, k) * element(a, as.second, k, column);
        c[column * as.result.step + row] = sum;
      }
    EXPECT_EQ(c, expected);
  }
}

}  // namespace
}  // namespace partita::cuda::product_test
