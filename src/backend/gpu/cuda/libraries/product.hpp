#pragma once

#include "partita/base/types.hpp"
#include "src/backend/common/hash_words.hpp"

#include <cublasLt.h>

#include <cstddef>
#include <memory>
#include <unordered_map>

namespace partita::cuda {

/// What decides how cuBLASLt computes a product C[m,n] = alpha op(A) op(B) + beta C of row-major matrices, as
/// Backend::gemm has it. All members are Index, so that the type has no padding bytes and can be hashed as raw memory.
struct ProductCall {
  Index dtype = 0;  ///< a DType
  Index transpose_a = 0, transpose_b = 0;
  Index m = 0, n = 0, k = 0;
  Index lda = 0, ldb = 0, ldc = 0;
  Index adds = 0;                                           ///< 1 if beta is not 0
  Index with_bias = 0;                                      ///< 1 if a bias[n] is added
  Index alignment_a = 0, alignment_b = 0, alignment_c = 0;  ///< bytes
  bool operator==(const ProductCall&) const = default;
};

/// cuBLASLt stores matrices by columns. A matrix that is stored by rows is its transpose there, so C' = op(B)' op(A)'
/// is computed.
struct ColumnMajor {
  struct Matrix {
    Index rows = 0, columns = 0, step = 0;  ///< as stored; `step` is the distance between columns
    bool transpose = false;
  };
  Matrix first, second, result;  ///< B', A' and C'
};
ColumnMajor column_major(const ProductCall& call);

/// The matrix products of one rank on one card.
class Products {
 public:
  /// Sums of f32 may take products that are rounded to TF32 if `tf32`.
  explicit Products(bool tf32);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// The addresses of a product.
  struct Operands {
    const void* a = nullptr;
    const void* b = nullptr;
    void* c = nullptr;
    const void* bias = nullptr;
  };
  /// Memory for partial sums.
  struct Room {
    void* data = nullptr;
    std::size_t bytes = 0;
  };

  /// Returns true if cuBLASLt has an algorithm for the product, with the same room.
  bool can(const ProductCall& call, const Room& room);
  /// Enqueues a product. Throws Error if cuBLASLt has no algorithm for it.
  void run(const ProductCall& call, double alpha, double beta, const Operands& operands, const Room& room,
           cudaStream_t stream);

 private:
  class Plan;
  const Plan& plan(const ProductCall& call, const Room& room);
  cublasLtHandle_t handle_ = nullptr;
  bool tf32_;
  std::unordered_map<ProductCall, std::unique_ptr<Plan>, HashWords> plans_;
};

}  // namespace partita::cuda
