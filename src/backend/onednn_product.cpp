#include "onednn_product.hpp"

#include "partita/base/error.hpp"

namespace partita {

OneDnnProduct::Primitive& OneDnnProduct::primitive(Index m, Index n, Index k, Index lda, Index ldb, Index ldc,
                                                   bool adds) {
  const std::array<Index, 7> key{m, n, k, lda, ldb, ldc, adds ? 1 : 0};
  if (const auto found = primitives_.find(key); found != primitives_.end()) return found->second;
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  using Desc = dnnl::memory::desc;
  constexpr auto f32 = dnnl::memory::data_type::f32;
  const Desc a({m, k}, f32, dnnl::memory::dims{lda, 1}), b({k, n}, f32, dnnl::memory::dims{1, ldb}),
      c({m, n}, f32, dnnl::memory::dims{ldc, 1});
  dnnl::primitive_attr attributes;
  dnnl::post_ops sum;
  if (adds) sum.append_sum();
  attributes.set_post_ops(sum);
  const dnnl::matmul run(dnnl::matmul::primitive_desc({a, b, c}, attributes, engine));
  return primitives_.emplace(key, Primitive{run, {a, engine, nullptr}, {b, engine, nullptr}, {c, engine, nullptr}})
      .first->second;
}

void OneDnnProduct::operator()(bool transpose_a, bool transpose_b, Index m, Index n, Index k, const float* a, Index lda,
                               const float* b, Index ldb, float beta, float* c, Index ldc, float alpha) {
  if (transpose_b && !transpose_a && (beta == 0 || beta == 1) && alpha == 1) {
    auto& product = primitive(m, n, k, lda, ldb, ldc, beta == 1);
    product.a.set_data_handle(const_cast<float*>(a));
    product.b.set_data_handle(const_cast<float*>(b));
    product.c.set_data_handle(c);
    static thread_local dnnl::stream stream(product.a.get_engine());
    product.run.execute(stream, {{DNNL_ARG_SRC, product.a}, {DNNL_ARG_WEIGHTS, product.b}, {DNNL_ARG_DST, product.c}});
    return;
  }
  const auto status =
      dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  require(status == dnnl_success, "oneDNN accepts the matrix product");
}

}  // namespace partita
