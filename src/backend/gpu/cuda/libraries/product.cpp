#include "src/backend/gpu/cuda/libraries/product.hpp"

#include "partita/base/error.hpp"
#include "src/backend/gpu/cuda/errors.hpp"

#include <array>

namespace partita::cuda {

namespace {

constexpr std::string_view what = "multiply matrices";

cudaDataType_t data_type_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return CUDA_R_64F;
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    case DType::i32: break;
  }
  broken("a product must have numbers with fractions");
}

cublasComputeType_t sums_of(DType dtype, bool tf32) {
  if (dtype == DType::f64) return CUBLAS_COMPUTE_64F;
  return dtype == DType::f32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/// Owns a handle of cuBLASLt; `destroy` is the library's function for it.
template <class Handle, auto CublasLt::*destroy>
struct Destroy {
  void operator()(Handle handle) const { (cublaslt().*destroy)(handle); }
};
template <class Handle, auto CublasLt::*destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, destroy>>;

using Layout = Owned<cublasLtMatrixLayout_t, &CublasLt::layout_destroy>;

Layout layout(DType dtype, const ColumnMajor::Matrix& matrix) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublaslt().layout_create(&made, data_type_of(dtype), static_cast<std::uint64_t>(matrix.rows),
                                 static_cast<std::uint64_t>(matrix.columns), matrix.step),
        what);
  return Layout(made);
}

}  // namespace

ColumnMajor column_major(const ProductCall& call) {
  const auto stored = [](bool transpose, Index rows, Index columns, Index step) {
    return transpose ? ColumnMajor::Matrix{rows, columns, step, true} : ColumnMajor::Matrix{columns, rows, step, false};
  };
  return {stored(call.transpose_b != 0, call.k, call.n, call.ldb),
          stored(call.transpose_a != 0, call.m, call.k, call.lda),
          {call.n, call.m, call.ldc, false}};
}

/// The descriptions of one product, and the algorithm that cuBLASLt proposes for it.
class Products::Plan {
 public:
  Plan(cublasLtHandle_t handle, const ProductCall& call, bool tf32, std::size_t bytes)
      : dtype_(static_cast<DType>(call.dtype)) {
    const ColumnMajor as = column_major(call);
    first_ = layout(dtype_, as.first);
    second_ = layout(dtype_, as.second);
    result_ = layout(dtype_, as.result);
    cublasLtMatmulDesc_t made = nullptr;
    check(cublaslt().desc_create(&made, sums_of(dtype_, tf32), dtype_ == DType::f64 ? CUDA_R_64F : CUDA_R_32F), what);
    product_.reset(made);
    set_transposed(CUBLASLT_MATMUL_DESC_TRANSA, as.first.transpose);
    set_transposed(CUBLASLT_MATMUL_DESC_TRANSB, as.second.transpose);
    if (call.with_bias != 0) set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    choose(handle, call, bytes);
  }

  bool found() const { return found_; }

  void run(cublasLtHandle_t handle, double alpha, double beta, const Operands& operands, const Room& room,
           cudaStream_t stream) const {
    const auto& [a, b, c, bias] = operands;
    if (bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    const std::array<float, 2> narrow{static_cast<float>(alpha), static_cast<float>(beta)};
    const bool wide = dtype_ == DType::f64;
    const void* by = wide ? static_cast<const void*>(&alpha) : &narrow[0];
    const void* keeps = wide ? static_cast<const void*>(&beta) : &narrow[1];
    check(cublaslt().matmul(handle, product_.get(), by, b, first_.get(), a, second_.get(), keeps, c, result_.get(), c,
                            result_.get(), &algorithm_, room.data, room.bytes, stream),
          what);
  }

 private:
  using Description = Owned<cublasLtMatmulDesc_t, &CublasLt::desc_destroy>;
  using Preference = Owned<cublasLtMatmulPreference_t, &CublasLt::preference_destroy>;

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t name, const Value& value) const {
    check(cublaslt().desc_set_attribute(product_.get(), name, &value, sizeof(value)), what);
  }
  void set_transposed(cublasLtMatmulDescAttributes_t side, bool transpose) {
    set(side, transpose ? CUBLAS_OP_T : CUBLAS_OP_N);
  }

  /// Partial sums are added in a fixed order, and not in the type of C.
  void choose(cublasLtHandle_t handle, const ProductCall& call, std::size_t bytes) {
    cublasLtMatmulPreference_t made = nullptr;
    check(cublaslt().preference_create(&made), what);
    const Preference preference(made);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
      check(cublaslt().preference_set_attribute(preference.get(), name, &value, sizeof(value)), what);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{bytes});
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(call.alignment_b));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(call.alignment_a));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(call.alignment_c));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(call.alignment_c));
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const auto status = cublaslt().algo_get_heuristic(handle, product_.get(), first_.get(), second_.get(),
                                                      result_.get(), result_.get(), preference.get(), 1, &best, &found);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, what);
    found_ = status == CUBLAS_STATUS_SUCCESS && found > 0;
    algorithm_ = best.algo;
  }

  DType dtype_;
  Layout first_, second_, result_;
  Description product_;
  cublasLtMatmulAlgo_t algorithm_{};
  bool found_ = false;
};

Products::Products(bool tf32) : tf32_(tf32) { check(cublaslt().create(&handle_), "start cuBLASLt"); }

Products::~Products() {
  plans_.clear();
  cublaslt().destroy(handle_);
}

const Products::Plan& Products::plan(const ProductCall& call, const Room& room) {
  auto& plan = plans_[call];
  if (plan == nullptr) plan = std::make_unique<Plan>(handle_, call, tf32_, room.bytes);
  return *plan;
}

bool Products::can(const ProductCall& call, const Room& room) { return plan(call, room).found(); }

void Products::run(const ProductCall& call, double alpha, double beta, const Operands& operands, const Room& room,
                   cudaStream_t stream) {
  if (!can(call, room))
    fail("cuBLASLt cannot {}: it has no algorithm for {} x {} x {} in {}", what, call.m, call.n, call.k,
         name(static_cast<DType>(call.dtype)));
  plan(call, room).run(handle_, alpha, beta, operands, room, stream);
}

}  // namespace partita::cuda
