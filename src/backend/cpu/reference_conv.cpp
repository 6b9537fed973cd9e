#include "src/backend/common/groups.hpp"
#include "src/backend/cpu/lowered.hpp"
#include "src/backend/cpu/reference.hpp"
#include "src/backend/cpu/reference_gemm.hpp"

namespace partita {

namespace {

/// Eigen's matrix product, for lowered convolutions.
constexpr auto eigen_product = []<class A>(bool transpose_a, bool transpose_b, Index m, Index n, Index k, const A* a,
                                           Index lda, const A* b, Index ldb, A beta, A* c, Index ldc) {
  multiply<A>(transpose_a, transpose_b, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
};

}  // namespace

void fill_bias(const Tensor& bias, const Tensor& y) {
  if (!bias || y.volume() == 0) return y.zero({});
  const Index filters = y.box().extent(1);
  require(bias.volume() == filters && bias.dtype() == y.dtype(), "there must be one bias per filter, in y's dtype");
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    for (Index at = 0; at < y.volume(); at += filters) std::copy_n(bias.as<T>(), filters, y.as<T>() + at);
  });
}

void ReferenceBackend::conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w,
                                    const Tensor& bias, const Tensor& y, Stream stream) {
  const ConvGeometry conv(windows, x, w, y);
  if (conv.groups > 1)
    return grouped_forward(conv.groups, x, w, bias, y,
                           [&](const Tensor& gx, const Tensor& gw, const Tensor& gb, const Tensor& gy) {
                             ReferenceBackend::conv_forward(windows, gx, gw, gb, gy, stream);
                           });
  if (conv.out != y.box() || conv.empty()) fill_bias(bias, y);
  if (conv.empty()) return;
  dispatch_float(y.dtype(), [&](auto t) { lowered_forward<decltype(t)>(conv, x, w, bias, y, eigen_product); });
}

void ReferenceBackend::conv_backward_data(std::span<const Window> windows, const Tensor& dy, const Tensor& w,
                                          const Tensor& dx, Stream stream) {
  const ConvGeometry conv(windows, dx, w, dy);
  if (conv.groups > 1)
    return grouped_backward_data(conv.groups, dy, w, dx, [&](const Tensor& gy, const Tensor& gw, const Tensor& gx) {
      ReferenceBackend::conv_backward_data(windows, gy, gw, gx, stream);
    });
  if (conv.empty()) return dx.zero({});
  dispatch_float(dx.dtype(), [&](auto t) { lowered_backward_data<decltype(t)>(conv, dy, w, dx, eigen_product); });
}

void ReferenceBackend::conv_backward_filter(std::span<const Window> windows, const Tensor& x, const Tensor& dy,
                                            const Tensor& dw, Write write, Stream stream) {
  const ConvGeometry conv(windows, x, dw, dy);
  if (conv.groups > 1)
    return grouped_backward_filter(conv.groups, x, dy, dw, [&](const Tensor& gx, const Tensor& gy, const Tensor& gw) {
      ReferenceBackend::conv_backward_filter(windows, gx, gy, gw, write, stream);
    });
  if (conv.empty()) return write == Write::over ? dw.zero({}) : void();
  dispatch_float(dw.dtype(),
                 [&](auto t) { lowered_backward_filter<decltype(t)>(conv, x, dy, dw, write, eigen_product); });
}

}  // namespace partita
