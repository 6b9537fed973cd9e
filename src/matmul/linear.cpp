#include "partita/matmul/linear.hpp"

#include "partita/base/error.hpp"

namespace partita {

namespace {

/// The box of w that x and y (or dy) use: F as y's C, the rest as x.
Box block_of(const Tensor& x, const Tensor& y, const Tensor& w) {
  Box block = w.box();
  block[0] = y.box()[1];
  for (int d = 1; d < block.dims(); ++d) block[d] = x.box()[d];
  return block;
}

/// x and w both lie channels last, so a sample of x and a row of w are the same sequence of elements.
struct Sizes {
  Index samples, features, contracted;
};

Sizes sizes_of(const Tensor& x, const Tensor& y) {
  Index contracted = 1;
  for (int d = 1; d < x.box().dims(); ++d) contracted *= x.box().extent(d);
  return {x.box().extent(0), y.box().extent(1), contracted};
}

Tensor dense(const Tensor& w, const Box& block) {
  return w.box() == block ? w : extract(w, block, MemoryClass::workspace);
}

}  // namespace

// y[n,f] = sum over c of x[n,c] w[f,c] + bias[f]
void linear_forward(Backend& backend, const Tensor& x, const Tensor& w, const Tensor& bias, bool add_bias,
                    const Tensor& y, Stream stream) {
  const auto [n, f, c] = sizes_of(x, y);
  if (n > 0 && f > 0 && c > 0) {
    const Tensor block = dense(w, block_of(x, y, w));
    backend.gemm(x.dtype(), false, true, n, f, c, 1, x.data(), c, block.data(), c, 0, y.data(), f, stream);
  } else {
    y.zero();
  }
  if (bias && add_bias && y.volume() > 0) backend.bias_forward(bias, y, stream);
}

// dx[n,c] = sum over f of dy[n,f] w[f,c]
void linear_backward_data(Backend& backend, const Tensor& dy, const Tensor& w, const Tensor& dx, Stream stream) {
  const auto [n, f, c] = sizes_of(dx, dy);
  if (n == 0 || c == 0) return;
  if (f == 0) return dx.zero();
  const Tensor block = dense(w, block_of(dx, dy, w));
  backend.gemm(dx.dtype(), false, false, n, c, f, 1, dy.data(), f, block.data(), c, 0, dx.data(), c, stream);
}

// dw[f,c] = sum over n of dy[n,f] x[n,c], or dw += it
void linear_backward_filter(Backend& backend, const Tensor& x, const Tensor& dy, const Tensor& dw, Write write,
                            Stream stream) {
  const auto [n, f, c] = sizes_of(x, dy);
  const Box box = block_of(x, dy, dw);
  const bool none = n == 0 || f == 0 || c == 0, whole = dw.box() == box;
  if (write == Write::over && (none || !whole)) dw.zero();
  if (none) return;
  const Tensor block = whole ? dw : dw.like(box, MemoryClass::workspace, Fill::none);
  const double before = whole && write == Write::add ? 1 : 0;
  backend.gemm(x.dtype(), true, false, f, c, n, 1, dy.data(), f, x.data(), c, before, block.data(), c, stream);
  if (!whole) unpack_add(block.data(), box, dw);
}

}  // namespace partita
