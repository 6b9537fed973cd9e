#pragma once

#include "partita/base/types.hpp"

#include <oneapi/dnnl/dnnl.hpp>

#include <array>
#include <map>

namespace partita {

// oneDNN's two matrix products, row-major. m, n and k must not be zero. Neither is faster in all cases.

/// C[m,n] = alpha * op(A) op(B) + beta * C by oneDNN's BLAS function
void onednn_sgemm(bool transpose_a, bool transpose_b, Index m, Index n, Index k, const float* a, Index lda,
                  const float* b, Index ldb, float beta, float* c, Index ldc, float alpha = 1);

/// C[m,n] = op(A) op(B) + beta * C + bias[n] by oneDNN's primitive; beta is 0 or 1, and bias may be null
class OneDnnMatmul {
 public:
  void operator()(bool transpose_a, bool transpose_b, Index m, Index n, Index k, const float* a, Index lda,
                  const float* b, Index ldb, float beta, float* c, Index ldc, const float* bias = nullptr);

 private:
  struct Primitive {
    dnnl::matmul run;
    dnnl::memory a, b, c, bias;
  };
  using Key = std::array<Index, 10>;  // all arguments except the arrays, and whether there is a bias
  static Primitive make(const Key& key);

  std::map<Key, Primitive> primitives_;
};

}  // namespace partita
