#pragma once

#include "partita/base/activation.hpp"
#include "partita/model/operator.hpp"

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace partita {

/// A value a spatial dimension (D H W): one number for all of them, or one each.
class PerDim {
 public:
  PerDim(Index all) : values_{all} {}  // NOLINT(google-explicit-constructor)
  PerDim(std::initializer_list<Index> each) : values_(each) {}
  Index operator[](std::size_t i) const { return values_.size() == 1 ? values_[0] : values_.at(i); }
  std::size_t values() const { return values_.size(); }
  /// Throws Error that names `what` unless there is one value or `dims`.
  void check(std::size_t dims, std::string_view what, Index least) const;

 private:
  std::vector<Index> values_;
};

/// Padding of one dimension: the same on both sides, or each side by itself.
struct Sides {
  Index lo = 0, hi = 0;
  Sides(Index both) : lo(both), hi(both) {}  // NOLINT(google-explicit-constructor)
  Sides(Index below, Index above) : lo(below), hi(above) {}
};

/// Padding a spatial dimension: `1`, `{1, 2}` (one each), `{{0, 1}, {2, 2}}` (one a side each).
class Padding {
 public:
  Padding(Index all) : values_{Sides(all)} {}  // NOLINT(google-explicit-constructor)
  Padding(std::initializer_list<Sides> each) : values_(each) {}
  const Sides& operator[](std::size_t i) const { return values_.size() == 1 ? values_[0] : values_.at(i); }
  std::size_t values() const { return values_.size(); }
  /// Throws Error that names `what` unless there is one value or `dims`, none negative.
  void check(std::size_t dims, std::string_view what = "padding") const;

 private:
  std::vector<Sides> values_;
};

/// Samples as they come from the data set.
struct Input {
  Index channels = 1;
  std::vector<Index> spatial;
};

/// y = conv(x, w) + b: every output reads a window of every channel.
struct Conv {
  Index filters = 1;
  PerDim kernel = 1;
  PerDim stride = 1;
  Padding padding = 0;
  PerDim dilation = 1;
  Index groups = 1;  ///< of channels, each with filters of its own: it divides both. As many as channels: depthwise
  bool bias = true;
};

/// The adjoint of a convolution with these windows, which takes y's shape to x's: every input adds to a window of y
/// (Dumoulin and Visin 2016). Extents: (x - 1) stride - padding + dilation (kernel - 1) + 1 + output_padding.
struct ConvTranspose {
  Index filters = 1;  ///< channels of y
  PerDim kernel = 1;
  PerDim stride = 1;
  Padding padding = 0;        ///< taken off y
  PerDim output_padding = 0;  ///< more of y above, less than a stride or a dilation
  PerDim dilation = 1;
  Index groups = 1;
  bool bias = true;
};

/// Maximum (padding counts as minus infinity) or average over a window.
struct Pool {
  PerDim window = 2;
  std::optional<PerDim> stride = std::nullopt;  ///< the window's size where none is given
  Padding padding = 0;
  PerDim dilation = 1;
  bool count_padding = false;  ///< average: padding counts as zeros, else only real inputs count
};

/// Over which samples batch normalisation takes its statistics in training.
enum class Statistics : std::uint8_t {
  global,  ///< the whole microbatch: the result does not depend on the layout
  local,   ///< each rank's own part: another result for another layout. Only the running statistics are summed
  along,   ///< the parts of the ranks along some axes of the grid: between the two
};

/// y = scale * (x - mean)/sqrt(variance + epsilon) + shift, a channel.
struct BatchNorm {
  double epsilon = 1e-5;
  double momentum = 0.1;  ///< running = (1-momentum) * running + momentum * batch
  Statistics statistics = Statistics::global;
  std::vector<std::string> axes = {};  ///< of Statistics::along; on a grid of one rank they need not be there
};

/// y = scale * (x - mean)/sqrt(variance + epsilon) + shift with statistics of a sample's group of channels, over
/// its space (Wu and He 2018).
struct GroupNorm {
  Index groups = 32;  ///< of equally many channels: it divides them
  double epsilon = 1e-5;
};

/// Outputs between inputs.
enum class Interpolation : std::uint8_t { nearest, linear };

/// `scale` outputs for every input of a spatial dimension; linear weighs the two inputs around an output's centre.
struct Upsample {
  PerDim scale = 2;
  Interpolation interpolation = Interpolation::nearest;
};

/// y[N F] = f(x[N C D H W] * w[F C D H W] + b): contracts all dimensions of a sample at once, so there is no flattening.
struct Linear {
  Index features = 1;
  bool bias = true;
  std::optional<Activation> activation = std::nullopt;  ///< f, applied where y is formed
};

/// y = x/(1-rate) or 0 with probability `rate`; drawn by seed, layer, step and global index. Passes x when evaluating.
struct Dropout {
  double rate = 0.5;
};

}  // namespace partita
