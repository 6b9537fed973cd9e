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

Window::Contact Window::contact(Interval outputs, Interval inputs) const {
  if (outputs.empty() || inputs.empty()) return {};
  // Tap k of output o hits input o*stride + k*dilation - pad_lo. The other taps hit none of these inputs.
  const Index first_tap = std::max<Index>(0, ceil_div(inputs.lo + pad_lo - (outputs.hi - 1) * stride, dilation));
  const Index last_tap = std::min(kernel - 1, floor_div(inputs.hi - 1 + pad_lo - outputs.lo * stride, dilation));
  Contact all{{outputs.hi, outputs.lo}, {inputs.hi, inputs.lo}};
  for (Index k = first_tap; k <= last_tap; ++k) {
    const Index shift = k * dilation - pad_lo;
    const Index first = std::max(outputs.lo, ceil_div(inputs.lo - shift, stride));
    const Index last = std::min(outputs.hi - 1, floor_div(inputs.hi - 1 - shift, stride));
    if (first > last) continue;
    all.outputs = {std::min(all.outputs.lo, first), std::max(all.outputs.hi, last + 1)};
    all.inputs = {std::min(all.inputs.lo, first * stride + shift), std::max(all.inputs.hi, last * stride + shift + 1)};
  }
  return all.outputs.empty() ? Contact{} : all;
}

bool Window::reads(Index o, Index n) const { return !inputs_of({o, o + 1}, {0, n}).empty(); }

std::string Window::print() const {
  std::string text = fmt::format("{}/{}", kernel, stride);
  if (dilation != 1) text += fmt::format(" dilated {}", dilation);
  if (pad_lo != 0 || pad_hi != 0)
    text += pad_lo == pad_hi ? fmt::format(" pad {}", pad_lo) : fmt::format(" pad {},{}", pad_lo, pad_hi);
  return text;
}

namespace {

/// Returns `within`, with the samples that `other` has too. Dimension i+2 becomes `part(windows[i], side of other, side
/// of within)`.
template <class Part>
Box part_of(const Box& within, std::span<const Window> windows, const Box& other, Part&& part) {
  Box box = within;
  box[0] = intersect(within[0], other[0]);
  for (int d = 2; d < box.dims(); ++d) box[d] = other.empty() ? Interval{} : part(windows[d - 2], other[d], within[d]);
  return box;
}

}  // namespace

Box inputs_of(std::span<const Window> windows, const Box& out, const Box& within) {
  return part_of(within, windows, out, [](const Window& w, Interval o, Interval i) { return w.inputs_of(o, i); });
}

Box outputs_of(std::span<const Window> windows, const Box& in, const Box& within) {
  return part_of(within, windows, in, [](const Window& w, Interval i, Interval o) { return w.outputs_of(i, o); });
}

}  // namespace partita
