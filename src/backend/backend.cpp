#include "partita/backend/backend.hpp"

#include "partita/base/error.hpp"

namespace partita {

void Backend::choose(const ConvProblem& /*problem*/, std::string_view algorithm) {
  fail("backend '{}' has only one convolution algorithm, and none named '{}'", name(), algorithm);
}

void Backend::fused_conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w,
                                 const Epilogue& then, const Tensor& y, Stream stream) {
  conv_forward(windows, x, w, then.bias, y, stream);
  apply({{}, then.activation}, y, stream);
}

void Backend::fused_gemm(bool transpose_a, bool transpose_b, Index m, Index n, Index k, const void* a, Index lda,
                         const void* b, Index ldb, const Epilogue& then, const Tensor& c, Stream stream) {
  gemm(c.dtype(), transpose_a, transpose_b, m, n, k, 1, a, lda, b, ldb, 0, c.data(), n, stream);
  apply(then, c, stream);
}

void Backend::apply(const Epilogue& then, const Tensor& y, Stream stream) {
  if (y.volume() == 0) return;
  if (then.bias) bias_forward(then.bias, y, stream);
  if (then.activation) activation_forward(*then.activation, y, y, stream);
}

Tensor norm_numbers(const Tensor& x, Index numbers, Index parts, Index channels, MemoryClass memory) {
  return x.beside(DType::f64, "SNC", Box(Shape{{'S', numbers}, {'N', parts}, {'C', channels}}), memory);
}

Tensor norm_number(const Tensor& numbers, Index s) {
  const Box box(Shape{{'N', numbers.extent('N')}, {'C', numbers.extent('C')}});
  return Tensor::view(numbers, s * box.volume(), "NC", box);
}

}  // namespace partita
