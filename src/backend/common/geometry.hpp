#pragma once

#include "partita/backend/backend.hpp"
#include "partita/base/error.hpp"
#include "src/backend/common/lattice.hpp"

#include <algorithm>

namespace partita {

/// The memory positions of a tensor's vectors of channels.
inline Lattice lattice_of(const Tensor& tensor) {
  Lattice lattice{.sides = sides_of(tensor.box())};
  lattice.strides[0] = tensor.stride(0);
  const int dims = tensor.box().dims();
  for (int d = 2; d < dims; ++d) lattice.strides[4 - dims + d] = tensor.stride(d);
  return lattice;
}

/// A part of a tensor's vectors of channels: its lattice, and the position in memory of its first vector.
struct PartLattice {
  Lattice lattice;
  Index first = 0;
};
inline PartLattice lattice_of(const Tensor& tensor, const Box& part) {
  const Lattice whole = lattice_of(tensor);
  const auto sides = sides_of(part);
  return {{sides, whole.strides}, whole.offset({sides[0].lo, sides[1].lo, sides[2].lo, sides[3].lo})};
}

/// A local convolution, reduced to its nonzero part: the outputs in y's box that read inputs in x's box, and the inputs
/// that they read.
struct ConvGeometry {
  std::array<Window, 3> windows;
  Box in, out;
  /// `in`, up to the end of x where fewer than a stride of inputs follow that no output reads, and no padding is needed
  /// behind them. A library that is given all of these computes the same outputs.
  Box reached;
  Index channels = 0, filters = 0, groups = 1;

  /// `a_group` is the number of channels that one filter reads.
  ConvGeometry(std::span<const Window> slides, const Box& x, Index a_group, const Box& y)
      : windows(three(slides)),
        in(x),
        out(y),
        channels(x.extent(1)),
        filters(y.extent(1)),
        groups(a_group > 0 ? std::max<Index>(channels / a_group, 1) : 1) {
    const auto dims = static_cast<int>(slides.size()) + 2;
    require(x.dims() == dims && y.dims() == dims, "there must be one window per dimension after C");
    in[0] = out[0] = intersect(x[0], y[0]);
    for (int d = 2; d < dims; ++d) {
      const auto [outputs, inputs] = slides[d - 2].contact(y[d], x[d]);
      out[d] = outputs;
      in[d] = inputs;
    }
    reached = in;
    for (int d = 2; d < dims; ++d) {
      const bool pads =
          (out[d].hi - 1) * slides[d - 2].stride - slides[d - 2].pad_lo + slides[d - 2].reach() > in[d].hi;
      if (!in[d].empty() && !pads && x[d].hi - in[d].hi < slides[d - 2].stride) reached[d].hi = x[d].hi;
    }
  }
  ConvGeometry(std::span<const Window> slides, const Tensor& x, const Tensor& w, const Tensor& y)
      : ConvGeometry(slides, x.box(), w.box().extent(1), y.box()) {
    require(x.find('N') == 0 && x.find('C') == 1 && w.find('F') == 0 && w.find('C') == 1,
            "x must have the dimensions N C ... and w the dimensions F C ...");
    require(x.dtype() == w.dtype() && x.dtype() == y.dtype(), "x, w and y must have the same dtype");
    if (empty()) return;
    require(w.box().extent(0) == filters && w.box().extent(1) * groups == channels && filters % groups == 0,
            "w must have the channels of x (or of one group) and one filter for each channel of y");
    for (int d = 2; d < x.box().dims(); ++d)
      require(w.box()[d] == Interval{0, slides[d - 2].kernel}, "w must hold whole kernels");
  }
  /// True if no output reads an input. Then y is the bias, and the gradients are zero.
  bool empty() const { return in.empty() || out.empty(); }
  /// True if each output reads exactly one input (kernel 1 and stride 1). Inputs and outputs then have the same order
  /// in memory.
  bool pointwise() const {
    return std::all_of(windows.begin(), windows.end(), [](const Window& w) { return w.kernel == 1 && w.stride == 1; });
  }
  /// The number of weights of one filter.
  Index taps() const { return windows[0].kernel * windows[1].kernel * windows[2].kernel * channels; }
};

}  // namespace partita
