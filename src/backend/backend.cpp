#include "partita/backend/backend.hpp"

#include "partita/base/error.hpp"

namespace partita {

void Backend::choose(const ConvProblem& /*problem*/, std::string_view algorithm) {
  fail("backend '{}' has only one convolution algorithm, and none named '{}'", name(), algorithm);
}

void Backend::fused_conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w,
                                 const Epilogue& epilogue, const Tensor& y, Stream stream) {
  conv_forward(windows, x, w, epilogue.bias, y, stream);
  apply({{}, epilogue.activation}, y, stream);
}

void Backend::fused_gemm(bool transpose_a, bool transpose_b, Index m, Index n, Index k, const void* a, Index lda,
                         const void* b, Index ldb, const Epilogue& epilogue, const Tensor& c, Stream stream) {
  gemm(c.dtype(), transpose_a, transpose_b, m, n, k, 1, a, lda, b, ldb, 0, c.data(), n, stream);
  apply(epilogue, c, stream);
}

void Backend::apply(const Epilogue& epilogue, const Tensor& y, Stream stream) {
  if (y.volume() == 0) return;
  if (epilogue.bias) bias_forward(epilogue.bias, y, stream);
  if (epilogue.activation) activation_forward(*epilogue.activation, y, y, stream);
}

Tensor norm_numbers(const Tensor& x, Index numbers, Index parts, Index channels, MemoryClass memory) {
  return x.beside(DType::f64, "SNC", Box(Shape{{'S', numbers}, {'N', parts}, {'C', channels}}), memory);
}

Tensor norm_number(const Tensor& numbers, Index s) {
  const Box box(Shape{{'N', numbers.extent('N')}, {'C', numbers.extent('C')}});
  return Tensor::view(numbers, s * box.volume(), "NC", box);
}

}  // namespace partita
