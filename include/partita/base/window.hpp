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
  /// Outputs and inputs of which each is the smallest interval that holds all that read, or are read by, the other.
  struct Contact {
    Interval outputs, inputs;
  };
  /// Returns where `outputs` and `inputs` meet: the smallest intervals that hold every output of the one and every
  /// input of the other such that a tap of the output hits the input. So the first and the last of each have a partner
  /// in the other, and the contact of a contact is the same. Both are {0, 0} if no tap hits.
  Contact contact(Interval outputs, Interval inputs) const;
  /// Returns the smallest interval that holds every input of `within` that the outputs `out` read.
  Interval inputs_of(Interval out, Interval within) const { return contact(out, within).inputs; }
  /// Returns the smallest interval that holds every output of `within` that reads an input in `in`.
  Interval outputs_of(Interval in, Interval within) const { return contact(within, in).outputs; }
  /// Returns true if output o reads at least one input of [0, n), i.e. not padding only.
  bool reads(Index o, Index n) const;
  /// Returns e.g. "3/2 dilated 2 pad 1,0": kernel/stride, then the dilation and padding if they are not the default.
  std::string print() const;

  bool operator==(const Window&) const = default;
};

/// Returns the smallest box that holds every input in the box `within` that the outputs in `out` read. `windows[i]`
/// slides over dimension i+2, since N and C come first. N is that of both boxes; C is that of `within`.
Box inputs_of(std::span<const Window> windows, const Box& out, const Box& within);

/// Returns the smallest box that holds every output in the box `within` that reads an input in `in`. N is that of both
/// boxes; C is that of `within`.
Box outputs_of(std::span<const Window> windows, const Box& in, const Box& within);

}  // namespace partita
