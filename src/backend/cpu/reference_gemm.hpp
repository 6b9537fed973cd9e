#pragma once

#include "partita/base/types.hpp"

namespace partita {

/// Backend::gemm on the types in which sums are formed: C[m,n] = alpha * op(A) op(B) + beta * C, row-major.
template <class A>
void multiply(bool transpose_a, bool transpose_b, Index m, Index n, Index k, A alpha, const A* a, Index lda, const A* b,
              Index ldb, A beta, A* c, Index ldc);

extern template void multiply(bool, bool, Index, Index, Index, float, const float*, Index, const float*, Index, float,
                              float*, Index);
extern template void multiply(bool, bool, Index, Index, Index, double, const double*, Index, const double*, Index,
                              double, double*, Index);

}  // namespace partita
