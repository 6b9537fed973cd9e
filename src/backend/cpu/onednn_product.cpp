#include "src/backend/cpu/onednn_product.hpp"

#include "partita/base/error.hpp"

#include <unordered_map>

namespace partita {

void onednn_sgemm(bool transpose_a, bool transpose_b, Index m, Index n, Index k, const float* a, Index lda,
                  const float* b, Index ldb, float beta, float* c, Index ldc, float alpha) {
  const auto status =
      dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  require(status == dnnl_success, "oneDNN must accept the matrix product");
}

OneDnnMatmul::Primitive OneDnnMatmul::make(const Key& key) {
  const auto& [transpose_a, transpose_b, m, n, k, lda, ldb, ldc, adds, has_bias] = key;
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const auto matrix = [](Index rows, Index columns, bool transposed, Index ld) {
    const dnnl::memory::dims strides{transposed ? 1 : ld, transposed ? ld : 1};
    return dnnl::memory::desc({rows, columns}, dnnl::memory::data_type::f32, strides);
  };
  const auto a = matrix(m, k, transpose_a != 0, lda), b = matrix(k, n, transpose_b != 0, ldb),
             c = matrix(m, n, false, ldc), bias = has_bias != 0 ? matrix(1, n, false, n) : dnnl::memory::desc();
  dnnl::primitive_attr attributes;
  dnnl::post_ops sum;
  if (adds != 0) sum.append_sum();
  attributes.set_post_ops(sum);
  return {dnnl::matmul(dnnl::matmul::primitive_desc({a, b, bias, c}, attributes, engine)),
          {a, engine, nullptr},
          {b, engine, nullptr},
          {c, engine, nullptr},
          {bias, engine, nullptr}};
}

void OneDnnMatmul::operator()(bool transpose_a, bool transpose_b, Index m, Index n, Index k, const float* a, Index lda,
                              const float* b, Index ldb, float beta, float* c, Index ldc, const float* bias) {
  require(beta == 0 || beta == 1, "beta of the matmul primitive must be 0 or 1");
  const Key key{transpose_a ? 1 : 0, transpose_b ? 1 : 0, m, n, k, lda, ldb, ldc, beta == 1 ? 1 : 0, bias != nullptr};
  auto found = primitives_.find(key);
  if (found == primitives_.end()) found = primitives_.emplace(key, make(key)).first;
  auto& product = found->second;
  product.a.set_data_handle(const_cast<float*>(a));
  product.b.set_data_handle(const_cast<float*>(b));
  product.c.set_data_handle(c);
  static thread_local dnnl::stream stream(product.a.get_engine());
  std::unordered_map<int, dnnl::memory> arguments{
      {DNNL_ARG_SRC, product.a}, {DNNL_ARG_WEIGHTS, product.b}, {DNNL_ARG_DST, product.c}};
  if (bias != nullptr) {
    product.bias.set_data_handle(const_cast<float*>(bias));
    arguments.emplace(DNNL_ARG_BIAS, product.bias);
  }
  product.run.execute(stream, arguments);
}

}  // namespace partita
