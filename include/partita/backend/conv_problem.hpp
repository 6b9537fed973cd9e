#pragma once

#include "partita/base/activation.hpp"
#include "partita/base/box.hpp"
#include "partita/base/window.hpp"

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace partita {

/// The three convolutions of a training step.
enum class ConvPass : Index { forward, backward_data, backward_filter };

/// A dense local convolution, reduced to what its kernels depend on: two calls with equal problems run the same way.
/// All members are Index, so that the type has no padding bytes and can be hashed as raw memory.
struct ConvProblem {
  /// One spatial dimension: the inputs, the outputs that read them, the window, and the padding (zeros) on both sides.
  /// The last inputs may be read by no output, if they are fewer than a stride: 56 inputs and kernel 1 with stride 2
  /// give 28 outputs, as 55 do.
  struct Side {
    Index in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, pad_lo = 0, pad_hi = 0;
    bool operator==(const Side&) const = default;
  };

  ConvPass pass = ConvPass::forward;
  Index spatial = 1;  ///< number of spatial dimensions: 1, 2 or 3; `sides` is in the order D H W, unused ones first
  Index batch = 0, channels = 0, filters = 0, groups = 1;
  Index with_bias = 0;  ///< 1 if a bias is added
  Index then = 0;       ///< of a forward: 1 + the Activation::Kind that is applied; 0 if none is
  std::array<Side, 3> sides{};

  ConvProblem() = default;
  /// The problem of a Backend call on an input x (or dx), weights w (or dw) and an output y (or dy) with these boxes.
  ConvProblem(ConvPass pass, std::span<const Window> windows, const Box& x, const Box& w, const Box& y, bool with_bias);

  /// Lets a forward apply an activation, or none. Its parameter is not part of the problem.
  void apply(const std::optional<Activation>& f);
  /// Returns the activation that is applied.
  std::optional<Activation> activation() const;
  /// Returns the problem without the inputs that no output reads.
  ConvProblem trimmed() const;
  /// True if there is nothing to compute.
  bool empty() const;
  /// Returns the problems of the two halves of the batch, each once; none if the batch has fewer than two samples.
  std::vector<ConvProblem> halves() const;
  /// Returns e.g. "forward N=8 C=64 F=128 in 28x28 out 14x14 kernel 3x3 stride 2x2 dilation 1x1 pad 1x1,0x0". Different
  /// problems have different texts.
  std::string print() const;

  bool operator==(const ConvProblem&) const = default;
};

/// Hashes a ConvProblem, for unordered containers.
struct ConvProblemHash {
  std::size_t operator()(const ConvProblem& problem) const;
};

}  // namespace partita
