#include "partita/base/window.hpp"

#include "partita/base/error.hpp"

#include <algorithm>

namespace partita {

namespace {

Index floor_div(Index a, Index b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
Index ceil_div(Index a, Index b) { return -floor_div(-a, b); }

}  // namespace

Index Window::outputs(Index n) const {
  const Index slack = n + pad_lo + pad_hi - reach();
  return slack < 0 ? 0 : slack / stride + 1;
}

Interval Window::inputs_of(Interval out, Index n) const {
  // Tap by tap, because outputs at an edge may read padding only, on one side of the inputs or on both.
  Interval read{n, 0};
  for (Index k = 0; k < kernel; ++k) {
    const Index shift = k * dilation - pad_lo;  // the tap reads input o*stride + shift
    const Index first = std::max(out.lo, ceil_div(-shift, stride));
    const Index last = std::min(out.hi - 1, floor_div(n - 1 - shift, stride));
    if (first <= last) read = {std::min(read.lo, first * stride + shift), std::max(read.hi, last * stride + shift + 1)};
  }
  return read.empty() ? Interval{} : read;
}

Interval Window::outputs_of(Interval in, Index m) const {
  if (in.empty()) return {0, 0};
  return intersect({ceil_div(in.lo + pad_lo - reach() + 1, stride), floor_div(in.hi - 1 + pad_lo, stride) + 1}, {0, m});
}

bool Window::reads(Index o, Index n) const {
  for (Index k = 0; k < kernel; ++k)
    if (const Index i = o * stride - pad_lo + k * dilation; i >= 0 && i < n) return true;
  return false;
}

std::string Window::print() const {
  std::string text = fmt::format("{}/{}", kernel, stride);
  if (dilation != 1) text += fmt::format(" dilated {}", dilation);
  if (pad_lo != 0 || pad_hi != 0)
    text += pad_lo == pad_hi ? fmt::format(" pad {}", pad_lo) : fmt::format(" pad {},{}", pad_lo, pad_hi);
  return text;
}

Box inputs_of(std::span<const Window> windows, const Box& out, const Shape& inputs) {
  Box in(inputs);
  in[0] = out[0];
  for (int i = 0; i < static_cast<int>(windows.size()); ++i)
    in[i + 2] =
        out.empty() ? Interval{} : windows[static_cast<std::size_t>(i)].inputs_of(out[i + 2], inputs.extent(i + 2));
  return in;
}

Box outputs_of(std::span<const Window> windows, const Box& in, const Shape& outputs) {
  Box out(outputs);
  out[0] = in[0];
  for (int i = 0; i < static_cast<int>(windows.size()); ++i)
    out[i + 2] =
        in.empty() ? Interval{} : windows[static_cast<std::size_t>(i)].outputs_of(in[i + 2], outputs.extent(i + 2));
  return out;
}

}  // namespace partita
