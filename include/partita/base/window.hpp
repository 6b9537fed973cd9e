#pragma once

#include "partita/base/box.hpp"

#include <span>
#include <string>

namespace partita {

/// A window that slides over one dimension: the kernel of a convolution or a pooling window.
/// Output o reads the inputs o*stride - pad_lo + k*dilation for k in [0, kernel). Inputs outside [0, n) are padding.
struct Window {
  Index kernel = 1;
  Index stride = 1;
  Index dilation = 1;
  Index pad_lo = 0;
  Index pad_hi = 0;

  /// The number of inputs from the first to the last one that an output reads: dilation*(kernel-1) + 1.
  Index reach() const { return dilation * (kernel - 1) + 1; }
  /// Returns the number of outputs over n inputs: floor((n + pad_lo + pad_hi - reach)/stride) + 1, or 0 if the window
  /// does not fit.
  Index outputs(Index n) const;
  /// Returns the smallest interval that holds every input of [0, n) that the outputs `out` read. Empty if `out` is
  /// empty or reads padding only.
  Interval inputs_of(Interval out, Index n) const;
  /// Returns the smallest interval that holds every output of [0, m) that may read an input in `in`. Empty if `in` is
  /// empty.
  Interval outputs_of(Interval in, Index m) const;
  /// Returns true if output o reads at least one input of [0, n), i.e. not padding only.
  bool reads(Index o, Index n) const;
  /// Returns e.g. "3/2 dilated 2 pad 1,0": kernel/stride, then the dilation and padding if they are not the default.
  std::string print() const;

  bool operator==(const Window&) const = default;
};

/// Returns the box of inputs, of a tensor of shape `inputs`, that the outputs in `out` read. `windows[i]` slides over
/// dimension i+2, since N and C come first. The interval of N is that of `out`; C is whole.
Box inputs_of(std::span<const Window> windows, const Box& out, const Shape& inputs);

/// Returns the box of outputs, of a tensor of shape `outputs`, that may read the inputs in `in`. The interval of N is
/// that of `in`; C is whole.
Box outputs_of(std::span<const Window> windows, const Box& in, const Shape& outputs);

}  // namespace partita
