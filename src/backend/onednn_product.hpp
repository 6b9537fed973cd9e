#pragma once

#include "partita/base/types.hpp"

#include <oneapi/dnnl/dnnl.hpp>

#include <array>
#include <map>

namespace partita {

/// oneDNN's two matrix products as one: C[m,n] = alpha * op(A) op(B) + beta * C, row-major, none of m, n, k zero. The
/// primitive is faster where B is transposed (a linear layer's and a lowered convolution's forward: by up to 1.4 with few
/// rows, measured), the BLAS function elsewhere.
class OneDnnProduct {
 public:
  void operator()(bool transpose_a, bool transpose_b, Index m, Index n, Index k, const float* a, Index lda,
                  const float* b, Index ldb, float beta, float* c, Index ldc, float alpha = 1);

 private:
  struct Primitive {
    dnnl::matmul run;
    dnnl::memory a, b, c;
  };
  Primitive& primitive(Index m, Index n, Index k, Index lda, Index ldb, Index ldc, bool adds);

  std::map<std::array<Index, 7>, Primitive> primitives_;  // C = A B' or C += A B', by sizes and strides
};

}  // namespace partita
