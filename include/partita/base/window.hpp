#pragma once

#include "partita/base/box.hpp"

#include <span>
#include <string>

namespace partita {

/// A window that slides over one dimension: a convolution's kernel or a pooling window.
/// Output o reads the inputs o*stride - pad_lo + k*dilation, k in [0, kernel); inputs outside [0, n) are padding.
struct Window {
  Index kernel = 1;
  Index stride = 1;
  Index dilation = 1;
  Index pad_lo = 0;
  Index pad_hi = 0;

  /// Inputs from the first to the last that one output reads: dilation*(kernel-1) + 1.
  Index reach() const { return dilation * (kernel - 1) + 1; }
  /// Number of outputs over n inputs: floor((n + pad_lo + pad_hi - reach)/stride) + 1, and 0 if the window does not
  /// fit.
  Index outputs(Index n) const;
  /// The smallest interval that holds every input of [0, n) read by the outputs `out`; empty if `out` is.
  Interval inputs_of(Interval out, Index n) const;
  /// The smallest interval that holds every output of [0, m) that may read an input in `in`; empty if `in` is.
  Interval outputs_of(Interval in, Index m) const;
  /// True if output o reads at least one input of [0, n).
  bool reads(Index o, Index n) const;
  /// e.g. "3/2 dilated 2 pad 1,0": kernel/stride, what is not the default after it.
  std::string print() const;

  bool operator==(const Window&) const = default;
};

/// Inputs (of a tensor shaped like `inputs`) that the outputs in `out` read. `windows[i]` slides over dimension `i+2`
/// (N and C come first); N is copied and C is whole.
Box inputs_of(std::span<const Window> windows, const Box& out, const Shape& inputs);

/// Outputs (of a tensor shaped like `outputs`) that may read the inputs in `in`; C is whole.
Box outputs_of(std::span<const Window> windows, const Box& in, const Shape& outputs);

}  // namespace partita
