#pragma once

#include "partita/base/box.hpp"
#include "partita/base/window.hpp"

#include <array>
#include <span>
#include <string>

namespace partita {

/// One of a convolution's three products.
enum class ConvPass : Index { forward, backward_data, backward_filter };

/// A dense local convolution, reduced to what its kernels depend on: two calls alike in it run alike. A value.
/// Index throughout, so that it has no padding and can be hashed as it lies.
struct ConvProblem {
  /// One spatial dimension: the inputs that are read, the outputs that read them, the window, and the zeros around.
  struct Side {
    Index in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, pad_lo = 0, pad_hi = 0;
    bool operator==(const Side&) const = default;
  };

  ConvPass pass = ConvPass::forward;
  Index spatial = 1;  ///< 1, 2 or 3 dimensions; sides are D H W, unused ones first
  Index batch = 0, channels = 0, filters = 0, groups = 1;
  Index with_bias = 0;  ///< 1 if a bias is added
  std::array<Side, 3> sides{};

  ConvProblem() = default;
  /// The problem of Backend's calls on an input x (or dx), weights w (or dw) and an output y (or dy) with these boxes.
  ConvProblem(ConvPass pass, std::span<const Window> windows, const Box& x, const Box& w, const Box& y, bool with_bias);

  /// True if nothing is to be computed.
  bool empty() const;
  /// e.g. "forward N=8 C=64 F=128 in 28x28 out 14x14 kernel 3x3 stride 2x2 dilation 1x1 pad 1x1,0x0"; another text for
  /// another problem.
  std::string print() const;

  bool operator==(const ConvProblem&) const = default;
};

/// For unordered containers.
struct ConvProblemHash {
  std::size_t operator()(const ConvProblem& problem) const;
};

}  // namespace partita
