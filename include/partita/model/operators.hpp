#pragma once

#include "partita/base/activation.hpp"
#include "partita/base/resampling.hpp"
#include "partita/model/layers.hpp"

#include <vector>

namespace partita {

// The operators behind Model's methods; kernels read their parameters.

/// The samples that the data set brings, x[N C ...].
class InputOperator final : public Operator {
 public:
  explicit InputOperator(Input input);
  std::string_view kind() const override { return "input"; }
  std::string describe() const override;
  int inputs() const override { return 0; }
  /// For one sample; Model::shapes sets N.
  Shape output(std::span<const Shape> inputs) const override;
  Kept keeps() const override { return {}; }
  OperatorLayouts layouts(const LayoutRequest& request) const override;

 private:
  Input input_;
};

/// y[N F ...] = conv(x[N C ...], w[F C ...]) + bias[F]; of groups, each with C/groups channels and F/groups filters.
class ConvOperator final : public Operator {
 public:
  explicit ConvOperator(Conv conv) : conv_(std::move(conv)) {}
  std::string_view kind() const override { return "conv"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  std::vector<WeightSpec> weights(std::span<const Shape> inputs) const override;
  std::vector<std::string> algorithms() const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  /// Channels of the output are others than the input's: whole.
  Layout follow(const Layout& x, const Shape& output) const override;
  double flops(std::span<const Shape> inputs, const Shape& output) const override;
  /// One window a spatial dimension of x.
  std::vector<Window> windows(const Shape& x) const;

 private:
  Conv conv_;
};

/// y[N C ...] = conv'(x[N F ...], w[F C ...]) + bias: its weights are those of the convolution of which it is the
/// adjoint, F its own input's channels and C its output's; the bias has one value an output channel, named F as every layer's.
class ConvTransposeOperator final : public Operator {
 public:
  explicit ConvTransposeOperator(ConvTranspose conv) : conv_(std::move(conv)) {}
  std::string_view kind() const override { return "conv_transpose"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  std::vector<WeightSpec> weights(std::span<const Shape> inputs) const override;
  std::vector<std::string> algorithms() const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  /// Channels of the output are others than the input's: whole.
  Layout follow(const Layout& x, const Shape& output) const override;
  double flops(std::span<const Shape> inputs, const Shape& output) const override;
  /// One window a spatial dimension of x: it slides over y.
  std::vector<Window> windows(const Shape& x) const;

 private:
  ConvTranspose conv_;
};

/// The maximum or the mean of windows of x[N C ...], channel by channel.
class PoolOperator final : public Operator {
 public:
  PoolOperator(Pool pool, bool maximum) : pool_(std::move(pool)), maximum_(maximum) {}
  std::string_view kind() const override { return maximum_ ? "max_pool" : "average_pool"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  /// A maximum keeps which input it was.
  Kept keeps() const override { return {.more = maximum_ ? size_of(DType::i32) : 0}; }
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  std::vector<Window> windows(const Shape& x) const;
  const Pool& pool() const { return pool_; }

 private:
  Window window(std::size_t i) const;
  Pool pool_;
  bool maximum_;
};

/// The mean of x[N C ...] over all of space.
class GlobalAveragePoolOperator final : public Operator {
 public:
  std::string_view kind() const override { return "global_average_pool"; }
  /// N C
  Shape output(std::span<const Shape> inputs) const override;
  Kept keeps() const override { return {}; }
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  double flops(std::span<const Shape> inputs, const Shape& output) const override;
};

/// Each output of y[N C ...] is a mean of inputs nearby, dimension by dimension: up-sampling and cropping.
class ResampleOperator : public Operator {
 public:
  Shape output(std::span<const Shape> inputs) const override;
  Kept keeps() const override { return {}; }
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  /// One a spatial dimension of x.
  virtual std::vector<Resampling> resamplings(const Shape& x) const = 0;

 protected:
  /// Outputs of dimension i of n inputs; throws Error where there are none.
  virtual Index outputs(std::size_t i, Index n, char name) const = 0;
};

/// More places: `scale` outputs for every input of a spatial dimension.
class UpsampleOperator final : public ResampleOperator {
 public:
  explicit UpsampleOperator(Upsample upsample) : upsample_(std::move(upsample)) {}
  std::string_view kind() const override { return "upsample"; }
  std::string describe() const override;
  std::vector<Resampling> resamplings(const Shape& x) const override;

 private:
  Index outputs(std::size_t i, Index n, char name) const override;
  Upsample upsample_;
};

/// Fewer places: margins are left out.
class CropOperator final : public ResampleOperator {
 public:
  explicit CropOperator(Padding margins) : margins_(std::move(margins)) {}
  std::string_view kind() const override { return "crop"; }
  std::string describe() const override;
  std::vector<Resampling> resamplings(const Shape& x) const override;

 private:
  Index outputs(std::size_t i, Index n, char name) const override;
  Padding margins_;
};

/// y[N (C i j) H/a W/b] = x[N C (H/a i) (W/b j)]: blocks of a x b places become channels, i before j, as many for each of x.
class SpaceToDepthOperator final : public Operator {
 public:
  explicit SpaceToDepthOperator(PerDim block) : block_(std::move(block)) {}
  std::string_view kind() const override { return "space_to_depth"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  Kept keeps() const override { return {}; }
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  /// Channels of the output are others than the input's: whole.
  Layout follow(const Layout& x, const Shape& output) const override;
  /// The blocks as windows that do not overlap.
  std::vector<Window> windows(const Shape& x) const;

 private:
  PerDim block_;
};

/// y = scale[C] * (x - mean[C]) / sqrt(variance[C] + epsilon) + shift[C] with statistics of the batch, or running ones in
/// evaluation (Ioffe and Szegedy 2015).
class BatchNormOperator final : public Operator {
 public:
  explicit BatchNormOperator(BatchNorm norm) : norm_(std::move(norm)) {}
  std::string_view kind() const override { return "batch_norm"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  std::vector<WeightSpec> weights(std::span<const Shape> inputs) const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  const BatchNorm& norm() const { return norm_; }
  /// The axes that cut x over which statistics are summed. Throws Error for one that the grid lacks.
  AxisSet statistics_axes(const Layout& x) const;

 private:
  BatchNorm norm_;
};

/// y = scale[C] * (x - mean[N G]) / sqrt(variance[N G] + epsilon) + shift[C], G groups of channels (Wu and He 2018).
class GroupNormOperator final : public Operator {
 public:
  explicit GroupNormOperator(GroupNorm norm) : norm_(norm) {}
  std::string_view kind() const override { return "group_norm"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  std::vector<WeightSpec> weights(std::span<const Shape> inputs) const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  const GroupNorm& norm() const { return norm_; }

 private:
  /// True if no group is cut.
  bool keeps_groups(const Layout& x) const;
  GroupNorm norm_;
};

/// y[N F] = f(x[N C ...] w[F C ...]' + bias[F]), contracted over all but N: three products (ProductPlan), each of which runs
/// in its own way, in any layouts of x, w and y.
class LinearOperator final : public Operator {
 public:
  explicit LinearOperator(Linear linear) : linear_(linear) {}
  std::string_view kind() const override { return "linear"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  std::vector<WeightSpec> weights(std::span<const Shape> inputs) const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override { return best(request, true); }
  /// The same, with every way worked out: `layouts` leaves out those whose gradients' products must cost too much.
  OperatorLayouts best_of_all(const LayoutRequest& request) const { return best(request, false); }
  std::vector<std::string> algorithms() const override { return product_algorithms(); }
  int products() const override { return 3; }
  /// Channels of the output are others than the input's: whole.
  Layout follow(const Layout& x, const Shape& output) const override;
  double flops(std::span<const Shape> inputs, const Shape& output) const override;
  Kept keeps() const override;
  const Linear& linear() const { return linear_; }

 private:
  OperatorLayouts best(const LayoutRequest& request, bool prunes) const;
  /// With x in this layout.
  ProductPlan product_of_y(const LayoutRequest& request, const Layout& x, const std::string& algorithm) const;
  /// With y formed like this.
  OperatorLayouts layouts(const LayoutRequest& request, const ProductPlan& of_y) const;
  Linear linear_;
};

/// Operators that compute each element from the same element of their inputs: activations, dropout, addition.
class ElementwiseOperator : public Operator {
 public:
  Shape output(std::span<const Shape> inputs) const override;
  Kept keeps() const override { return {}; }
  OperatorLayouts layouts(const LayoutRequest& request) const override;
};

/// y = f(x)
class ActivationOperator final : public ElementwiseOperator {
 public:
  explicit ActivationOperator(Activation f) : f_(f) {}
  Shape output(std::span<const Shape> inputs) const override;
  std::string_view kind() const override { return name(f_.kind); }
  Kept keeps() const override { return {.x = !f_.differentiates_value(), .y = f_.differentiates_value()}; }
  std::string describe() const override;
  const Activation& activation() const { return f_; }

 private:
  Activation f_;
};

/// y = x1 + x2, of one shape.
class AddOperator final : public ElementwiseOperator {
 public:
  std::string_view kind() const override { return "add"; }
  int inputs() const override { return 2; }
};

/// y[N C1+C2+... ...] = the channels of x1[N C1 ...], x2[N C2 ...], ...
class ConcatenateOperator final : public Operator {
 public:
  explicit ConcatenateOperator(int inputs) : inputs_(inputs) {}
  std::string_view kind() const override { return "concatenate"; }
  int inputs() const override { return inputs_; }
  Shape output(std::span<const Shape> inputs) const override;
  Kept keeps() const override { return {}; }
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  /// Channels of the output are others than the input's: whole.
  Layout follow(const Layout& x, const Shape& output) const override;

 private:
  int inputs_;
};

/// y = x / (1 - rate), or 0 with probability `rate`, drawn by seed, step and global index; y = x in evaluation.
class DropoutOperator final : public ElementwiseOperator {
 public:
  explicit DropoutOperator(Dropout dropout) : dropout_(dropout) {}
  Shape output(std::span<const Shape> inputs) const override;
  std::string_view kind() const override { return "dropout"; }
  std::string describe() const override;
  double rate() const { return dropout_.rate; }

 private:
  Dropout dropout_;
};

/// Losses: they differ in what they compare x with, in whether they need all channels of a place, and in their sums.
class LossOperator : public Operator {
 public:
  /// A number a sample; what a loss leaves for others is nothing.
  Shape output(std::span<const Shape> inputs) const override;
  bool is_loss() const override { return true; }
};

/// The mean over samples and places of -log softmax(x[N C ...])[label].
class CrossEntropyOperator final : public LossOperator {
 public:
  std::string_view kind() const override { return "softmax_cross_entropy"; }
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  Target target(const Shape& x) const override;
};

/// 1 - the mean over samples and channels of (2 sum p g + 1)/(sum p + sum g + 1), sums over places; p = softmax(x[N C ...]),
/// g is 1 in the label's channel (Milletari et al. 2016, with sums of p instead of squares).
class DiceOperator final : public LossOperator {
 public:
  std::string_view kind() const override { return "softmax_dice"; }
  Shape output(std::span<const Shape> inputs) const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  Target target(const Shape& x) const override;
};

/// The mean over all elements of (x - target)^2 or of |x - target|.
class DifferenceOperator final : public LossOperator {
 public:
  explicit DifferenceOperator(bool absolute) : absolute_(absolute) {}
  std::string_view kind() const override { return absolute_ ? "mean_absolute_error" : "mean_squared_error"; }
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  Target target(const Shape& x) const override { return {x, false}; }
  bool absolute() const { return absolute_; }

 private:
  bool absolute_;
};

}  // namespace partita
