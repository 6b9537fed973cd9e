#include "src/backend/cpu/reference_gemm.hpp"

#include "src/backend/common/scratch.hpp"
#include "src/backend/cpu/reference.hpp"

#include <Eigen/Dense>

namespace partita {

template <class A>
void multiply(bool transpose_a, bool transpose_b, Index m, Index n, Index k, A alpha, const A* a, Index lda, const A* b,
              Index ldb, A beta, A* c, Index ldc) {
  using Rows = Eigen::Matrix<A, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Stride = Eigen::OuterStride<>;
  const Eigen::Map<const Rows, 0, Stride> left(a, transpose_a ? k : m, transpose_a ? m : k, Stride(lda));
  const Eigen::Map<const Rows, 0, Stride> right(b, transpose_b ? n : k, transpose_b ? k : n, Stride(ldb));
  Eigen::Map<Rows, 0, Stride> result(c, m, n, Stride(ldc));
  if (beta == A{0})
    result.setZero();  // not multiplied by 0, so that a NaN in the old content does not survive
  else if (beta != A{1})
    result *= beta;
  if (m == 0 || n == 0 || k == 0) return;
  if (transpose_a && transpose_b)
    result.noalias() += alpha * left.transpose() * right.transpose();
  else if (transpose_a)
    result.noalias() += alpha * left.transpose() * right;
  else if (transpose_b)
    result.noalias() += alpha * left * right.transpose();
  else
    result.noalias() += alpha * left * right;
}

template void multiply(bool, bool, Index, Index, Index, float, const float*, Index, const float*, Index, float, float*,
                       Index);
template void multiply(bool, bool, Index, Index, Index, double, const double*, Index, const double*, Index, double,
                       double*, Index);

namespace {

/// Copies a matrix with `stride` elements between rows into a dense one in the accumulator's type.
template <class T>
Scratch<Accumulator<T>> widen(const T* from, Index rows, Index columns, Index stride) {
  Scratch<Accumulator<T>> to(rows * columns);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j) to[i * columns + j] = static_cast<Accumulator<T>>(from[i * stride + j]);
  return to;
}

}  // namespace

void ReferenceBackend::gemm(DType dtype, bool transpose_a, bool transpose_b, Index m, Index n, Index k, double alpha,
                            const void* a, Index lda, const void* b, Index ldb, double beta, void* c, Index ldc,
                            Stream) {
  dispatch_float(dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const auto *left = static_cast<const T*>(a), *right = static_cast<const T*>(b);
    auto* result = static_cast<T*>(c);
    const A by = static_cast<A>(alpha), keep = static_cast<A>(beta);
    if constexpr (std::is_same_v<T, A>) {
      multiply<A>(transpose_a, transpose_b, m, n, k, by, left, lda, right, ldb, keep, result, ldc);
    } else {
      const Index columns_a = transpose_a ? m : k, columns_b = transpose_b ? k : n;
      const auto wide_a = widen(left, transpose_a ? k : m, columns_a, lda);
      const auto wide_b = widen(right, transpose_b ? n : k, columns_b, ldb);
      const auto sums = widen(result, m, n, ldc);
      multiply<A>(transpose_a, transpose_b, m, n, k, by, wide_a.data(), columns_a, wide_b.data(), columns_b, keep,
                  sums.data(), n);
      for (Index i = 0; i < m; ++i)
        for (Index j = 0; j < n; ++j) result[i * ldc + j] = static_cast<T>(sums[i * n + j]);
    }
  });
}

}  // namespace partita
