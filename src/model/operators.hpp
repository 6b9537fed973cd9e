#pragma once

#include "partita/base/activation.hpp"
#include "partita/base/resampling.hpp"
#include "partita/model/layers.hpp"

#include <vector>

namespace partita {

// The operators behind Model's methods. Kernels read their parameters.

/// The samples that the data set delivers, x[N C ...].
class InputOperator final : public Operator {
 public:
  explicit InputOperator(Input input);
  std::string_view kind() const override { return "input"; }
  std::string describe() const override;
  int inputs() const override { return 0; }
  /// The output shape for one sample; Model::shapes sets N.
  Shape output(std::span<const Shape> inputs) const override;
  Kept keeps() const override { return {}; }
  bool integers() const override { return input_.tokens; }
  PlaceUse place_use() const override { return PlaceUse::same; }
  const Input& input() const { return input_; }
  /// False: it is the batch.
  bool output_may_be_overwritten() const override { return false; }
  OperatorLayouts layouts(const LayoutRequest& request) const override;

 private:
  Input input_;
};

/// y[N F ...] = conv(x[N C ...], w[F C ...]) + bias[F]. With groups, each group has C/groups channels and F/groups
/// filters.
class ConvOperator final : public Operator {
 public:
  explicit ConvOperator(Conv conv) : conv_(std::move(conv)) {}
  std::string_view kind() const override { return "conv"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  std::vector<WeightSpec> weights(std::span<const Shape> inputs) const override;
  ActivationFusion activation_fusion(const Activation& /*f*/) const override { return ActivationFusion::where_fused; }
  std::vector<Algorithm> algorithms() const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  /// The output's channels are not the input's, so they are whole.
  Layout follow(const Layout& x, const Shape& output) const override;
  double flops(std::span<const Shape> inputs, const Shape& output) const override;
  HaloOverlap halo_overlap() const override { return {.x = true, .dy = true}; }
  /// Thin copies of the largest border and of the inputs that it reads.
  Index held_ahead(const OperatorLayouts& at, int rank) const override;
  KernelKind kernel_kind() const override { return KernelKind::conv; }
  /// Returns one window per spatial dimension of x.
  std::vector<Window> windows(const Shape& x) const;

 private:
  Conv conv_;
};

/// y[N C ...] = conv'(x[N F ...], w[F C ...]) + bias. It has the weights of the convolution whose adjoint it is: F are
/// its input's channels, C its output's. The bias has one value per output channel; its dimension is named F, as in
/// every layer.
class ConvTransposeOperator final : public Operator {
 public:
  explicit ConvTransposeOperator(ConvTranspose conv) : conv_(std::move(conv)) {}
  std::string_view kind() const override { return "conv_transpose"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  std::vector<WeightSpec> weights(std::span<const Shape> inputs) const override;
  std::vector<Algorithm> algorithms() const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  /// The output's channels are not the input's, so they are whole.
  Layout follow(const Layout& x, const Shape& output) const override;
  double flops(std::span<const Shape> inputs, const Shape& output) const override;
  HaloOverlap halo_overlap() const override { return {.dy = true}; }
  KernelKind kernel_kind() const override { return KernelKind::conv; }
  /// Returns one window per spatial dimension of x; it slides over y.
  std::vector<Window> windows(const Shape& x) const;

 private:
  ConvTranspose conv_;
};

/// The maximum or the mean over windows of x[N C ...], per channel.
class PoolOperator final : public Operator {
 public:
  PoolOperator(Pool pool, bool maximum) : pool_(std::move(pool)), maximum_(maximum) {}
  std::string_view kind() const override { return maximum_ ? "max_pool" : "average_pool"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  /// Maximum pooling keeps the index of each maximum.
  Kept keeps() const override { return {.more = maximum_ ? size_of(DType::i32) : 0}; }
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  std::vector<Window> windows(const Shape& x) const;
  HaloOverlap halo_overlap() const override { return {.x = true, .dx = true}; }
  const Pool& pool() const { return pool_; }
  bool maximum() const { return maximum_; }

 private:
  Window window(std::size_t i) const;
  Pool pool_;
  bool maximum_;
};

/// The mean of x[N C ...] over all spatial dimensions.
class GlobalAveragePoolOperator final : public Operator {
 public:
  std::string_view kind() const override { return "global_average_pool"; }
  /// Returns the shape N C.
  Shape output(std::span<const Shape> inputs) const override;
  Kept keeps() const override { return {}; }
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  double flops(std::span<const Shape> inputs, const Shape& output) const override;
};

/// Each output of y[N C ...] is a weighted mean of nearby inputs, dimension by dimension: upsampling and cropping.
class ResampleOperator : public Operator {
 public:
  Shape output(std::span<const Shape> inputs) const override;
  Kept keeps() const override { return {}; }
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  /// Returns one resampling per spatial dimension of x.
  virtual std::vector<Resampling> resamplings(const Shape& x) const = 0;

 protected:
  /// Number of outputs in dimension i for n inputs. Throws Error if there are none.
  virtual Index outputs(std::size_t i, Index n, char name) const = 0;
};

/// `scale` outputs per input in each spatial dimension.
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

/// Removes margins from the spatial dimensions.
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

/// y[N (C i j) H/a W/b] = x[N C (H/a i) (W/b j)]: moves spatial blocks of a x b into channels, i before j, so that each
/// channel of x becomes a*b channels.
class SpaceToDepthOperator final : public Operator {
 public:
  explicit SpaceToDepthOperator(PerDim block) : block_(std::move(block)) {}
  std::string_view kind() const override { return "space_to_depth"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  Kept keeps() const override { return {}; }
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  /// The output's channels are not the input's, so they are whole.
  Layout follow(const Layout& x, const Shape& output) const override;
  /// Returns the blocks as non-overlapping windows.
  std::vector<Window> windows(const Shape& x) const;

 private:
  PerDim block_;
};

/// The passes of a normalization. With statistics, x is read for them, and again with y written; then x and dy are read
/// for two sums, and again with dx written.
constexpr MemoryPasses passes_of_norm(bool statistics) {
  return statistics ? MemoryPasses{.x = 2, .y = 1, .dx = 3, .dy = 2} : MemoryPasses{};
}

/// Which activation a normalization computes: ReLU, since most networks have it there. Its backward reads y to see
/// where ReLU passed a gradient on.
constexpr ActivationFusion fusion_of_norm(const Activation& f) {
  return f.kind == Activation::Kind::relu ? ActivationFusion::both : ActivationFusion::no;
}

/// y = scale[C] * (x - mean[C]) / sqrt(variance[C] + epsilon) + shift[C], with the statistics of the batch in training
/// and running statistics in evaluation (Ioffe and Szegedy 2015).
class BatchNormOperator final : public Operator {
 public:
  explicit BatchNormOperator(BatchNorm norm) : norm_(std::move(norm)) {}
  std::string_view kind() const override { return "batch_norm"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  std::vector<WeightSpec> weights(std::span<const Shape> inputs) const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  bool depends_on_microbatches() const override { return true; }
  MemoryPasses memory_passes(bool training) const override { return passes_of_norm(training); }
  ActivationFusion activation_fusion(const Activation& f) const override { return fusion_of_norm(f); }
  HeldNumbers numbers(const Layout& x, int rank, bool training) const override;
  const BatchNorm& norm() const { return norm_; }
  /// Returns the axes that shard x and over which statistics are summed. Throws Error for an axis that the grid lacks.
  AxisSet statistics_axes(const Layout& x) const;

 private:
  BatchNorm norm_;
};

/// y = scale[C] * (x - mean[N G]) / sqrt(variance[N G] + epsilon) + shift[C] with G groups of channels (Wu and He
/// 2018).
class GroupNormOperator final : public Operator {
 public:
  explicit GroupNormOperator(GroupNorm norm) : norm_(norm) {}
  std::string_view kind() const override { return "group_norm"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  std::vector<WeightSpec> weights(std::span<const Shape> inputs) const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  MemoryPasses memory_passes(bool /*training*/) const override { return passes_of_norm(true); }
  ActivationFusion activation_fusion(const Activation& f) const override { return fusion_of_norm(f); }
  HeldNumbers numbers(const Layout& x, int rank, bool training) const override;
  const GroupNorm& norm() const { return norm_; }

 private:
  /// True if x shards no group.
  bool keeps_groups(const Layout& x) const;
  GroupNorm norm_;
};

/// Throws Error for features or a deviation that no linear layer can have.
void check_linear(const Linear& linear);
/// The standard deviation of a linear layer's initial weights, and what its description says of it.
double deviation_of(const Linear& linear, Index fan_in);
std::string describe_deviation(const Linear& linear);

/// y[N F] = f(x[N C ...] w[F C ...]' + bias[F]), contracted over all dimensions but N. It is three products
/// (ProductPlan), of y, dx and dw; each has its own algorithm and takes x, w and y in any layouts.
class LinearOperator final : public Operator {
 public:
  explicit LinearOperator(Linear linear) : linear_(linear) {}
  std::string_view kind() const override { return "linear"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  std::vector<WeightSpec> weights(std::span<const Shape> inputs) const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  std::vector<Algorithm> algorithms() const override { return product_algorithms(); }
  int products() const override { return 3; }
  bool computes_dw_separately() const override { return true; }
  /// The output's channels are not the input's, so they are whole.
  Layout follow(const Layout& x, const Shape& output) const override;
  double flops(std::span<const Shape> inputs, const Shape& output) const override;
  Kept keeps() const override;
  ActivationFusion activation_fusion(const Activation& /*f*/) const override {
    return linear_.activation ? ActivationFusion::no : ActivationFusion::where_fused;
  }
  const Linear& linear() const { return linear_; }

 private:
  Linear linear_;
};

/// y[N F ...] = x[N C ...] * w[F C] + bias[F], at each place on its own. With groups, each group has C/groups channels
/// and F/groups features.
class PlaceLinearOperator final : public Operator {
 public:
  explicit PlaceLinearOperator(Linear linear) : linear_(linear) {}
  std::string_view kind() const override { return "linear"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  std::vector<WeightSpec> weights(std::span<const Shape> inputs) const override;
  std::vector<Algorithm> algorithms() const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  PlaceUse place_use() const override { return PlaceUse::same; }
  bool computes_dw_separately() const override { return true; }
  /// The output's channels are not the input's, so they are whole.
  Layout follow(const Layout& x, const Shape& output) const override;
  double flops(std::span<const Shape> inputs, const Shape& output) const override;
  ActivationFusion activation_fusion(const Activation& /*f*/) const override {
    return linear_.groups > 1 ? ActivationFusion::no : ActivationFusion::where_fused;
  }
  KernelKind kernel_kind() const override { return KernelKind::product; }
  std::string_view tied_to() const override { return linear_.tied_to; }
  Index groups() const { return linear_.groups; }

 private:
  Linear linear_;
};

/// Operators that compute each element from the same element of their inputs: activations, dropout, addition.
class ElementwiseOperator : public Operator {
 public:
  Shape output(std::span<const Shape> inputs) const override;
  Kept keeps() const override { return {}; }
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  PlaceUse place_use() const override { return PlaceUse::same; }
};

/// y = scale[C] * (x - mean) / sqrt(variance + epsilon) + shift[C], with statistics of each place (Ba et al. 2016). If
/// not `centered`, the mean counts as 0, and there is no shift (Zhang and Sennrich 2019).
class PlaceNormOperator final : public Operator {
 public:
  PlaceNormOperator(double epsilon, bool centered) : epsilon_(epsilon), centered_(centered) {}
  std::string_view kind() const override { return centered_ ? "layer_norm" : "rms_norm"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  std::vector<WeightSpec> weights(std::span<const Shape> inputs) const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  PlaceUse place_use() const override { return PlaceUse::same; }
  bool adds_gradient() const override { return true; }
  /// A row stays in the cache for its passes.
  MemoryPasses memory_passes(bool /*training*/) const override { return {.x = 1, .y = 1, .dx = 2, .dy = 1}; }
  double epsilon() const { return epsilon_; }
  bool centered() const { return centered_; }

 private:
  double epsilon_;
  bool centered_;
};

/// y[N F L] = table[V F] at the tokens x[N 1 L].
class EmbeddingOperator final : public Operator {
 public:
  explicit EmbeddingOperator(const Embedding& embedding) : embedding_(embedding) {}
  std::string_view kind() const override { return "embedding"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  std::vector<WeightSpec> weights(std::span<const Shape> inputs) const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  bool reads_integers(int /*input*/) const override { return true; }
  PlaceUse place_use() const override { return PlaceUse::same; }
  double flops(std::span<const Shape> /*inputs*/, const Shape& /*output*/) const override { return 0; }
  MemoryPasses memory_passes(bool /*training*/) const override { return {.x = 1, .y = 2, .dx = 1, .dy = 1, .w = 0}; }
  bool dw_reads_weights() const override { return false; }
  Index vocabulary() const { return embedding_.vocabulary; }

 private:
  Embedding embedding_;
};

/// y[N F L] = the sum or mean over p of w[V F L] at the indices x[N p L].
class TablesOperator final : public Operator {
 public:
  explicit TablesOperator(const Tables& tables) : tables_(tables) {}
  std::string_view kind() const override { return "tables"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  std::vector<WeightSpec> weights(std::span<const Shape> inputs) const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  bool reads_integers(int /*input*/) const override { return true; }
  /// The channels of the output are not the indices of a bag, so they are whole.
  Layout follow(const Layout& x, const Shape& output) const override;
  double flops(std::span<const Shape> inputs, const Shape& output) const override;
  bool dw_reads_weights() const override { return false; }
  /// Backward reads and writes the row of each index, and sets the whole gradient to zero.
  MemoryPasses memory_passes(bool /*training*/) const override {
    return {.x = 1, .y = 1, .dx = 1, .dy = 1, .w = 0, .row = 1, .drow = 2};
  }
  const Tables& tables() const { return tables_; }

 private:
  Tables tables_;
};

/// y[N (F + pairs)] = (d[N F], all products of two of the vectors d and v[N F L])
class InteractionOperator final : public Operator {
 public:
  std::string_view kind() const override { return "interaction"; }
  int inputs() const override { return 2; }
  Shape output(std::span<const Shape> inputs) const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  /// Each rank has all channels of its samples.
  Layout follow(const Layout& x, const Shape& output) const override;
  double flops(std::span<const Shape> inputs, const Shape& output) const override;
  /// Each of the vectors meets all others.
  double backward_work() const override { return 2; }
  /// Vectors stay in the cache while their pairs are computed.
  MemoryPasses memory_passes(bool /*training*/) const override { return {.x = 1, .y = 1, .dx = 2, .dy = 1}; }
};

/// y[N C L] = x[N C D H W], with one place for each position, in their order.
class PlacesOperator final : public Operator {
 public:
  std::string_view kind() const override { return "places"; }
  Shape output(std::span<const Shape> inputs) const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  Layout follow(const Layout& x, const Shape& output) const override;
  Kept keeps() const override { return {}; }
  double flops(std::span<const Shape> /*inputs*/, const Shape& /*output*/) const override { return 0; }
};

/// y[N C L] = x[N C L] + w[C L]
class PositionsOperator final : public Operator {
 public:
  explicit PositionsOperator(const Positions& positions) : positions_(positions) {}
  std::string_view kind() const override { return "positions"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  std::vector<WeightSpec> weights(std::span<const Shape> inputs) const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  PlaceUse place_use() const override { return PlaceUse::same; }
  Kept keeps() const override { return {}; }
  bool overwrites_input() const override { return true; }
  bool forwards_gradient() const override { return true; }
  bool dw_reads_weights() const override { return false; }
  const Positions& positions() const { return positions_; }

 private:
  Positions positions_;
};

/// y[N F ...] = f(x[N 2F ...] at channel 2c) * x at channel 2c+1
class GatedOperator final : public Operator {
 public:
  explicit GatedOperator(const Activation& f) : f_(f) {}
  std::string_view kind() const override { return "gated"; }
  std::string describe() const override { return std::string(name(f_.kind)); }
  Shape output(std::span<const Shape> inputs) const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  PlaceUse place_use() const override { return PlaceUse::same; }
  /// The gradient has the size of x, as what it reads.
  MemoryPasses memory_passes(bool /*training*/) const override { return {.x = 1, .y = 1, .dx = 2, .dy = 1}; }
  const Activation& function() const { return f_; }

 private:
  Activation f_;
};

/// y = f(x)
class ActivationOperator final : public ElementwiseOperator {
 public:
  explicit ActivationOperator(Activation f) : f_(f) {}
  Shape output(std::span<const Shape> inputs) const override;
  std::string_view kind() const override { return name(f_.kind); }
  Kept keeps() const override { return {.x = !f_.differentiates_value(), .y = f_.differentiates_value()}; }
  bool overwrites_input() const override { return f_.differentiates_value(); }
  std::string describe() const override;
  /// The backward reads dy and what it kept, and writes dx.
  MemoryPasses memory_passes(bool /*training*/) const override { return {.x = 1, .y = 1, .dx = 1, .dy = 2}; }
  std::optional<Activation> activation() const override { return f_; }

 private:
  Activation f_;
};

/// y = x1 + x2; both inputs have the same shape.
class AddOperator final : public ElementwiseOperator {
 public:
  std::string_view kind() const override { return "add"; }
  int inputs() const override { return 2; }
  bool overwrites_input() const override { return true; }
  bool drops_input() const override { return true; }
  bool forwards_gradient() const override { return true; }
  ActivationFusion activation_fusion(const Activation& f) const override {
    return f.kind == Activation::Kind::relu ? ActivationFusion::forward : ActivationFusion::no;
  }
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
  PlaceUse place_use() const override { return PlaceUse::same; }
  /// The output's channels are not the input's, so they are whole.
  Layout follow(const Layout& x, const Shape& output) const override;

 private:
  int inputs_;
};

/// y = x / (1 - rate), or 0 with probability `rate`. The draw depends on seed, layer, step and global index. In
/// evaluation y = x.
class DropoutOperator final : public ElementwiseOperator {
 public:
  explicit DropoutOperator(Dropout dropout) : dropout_(dropout) {}
  Shape output(std::span<const Shape> inputs) const override;
  std::string_view kind() const override { return "dropout"; }
  std::string describe() const override;
  bool overwrites_input() const override { return true; }
  double dropout_rate() const override { return dropout_.rate; }

 private:
  Dropout dropout_;
};

/// Losses. They differ in their target, in whether they need all channels of a spatial position, and in their sums.
class LossOperator : public Operator {
 public:
  /// Returns the shape N: one number per sample. No other layer can use a loss's output.
  Shape output(std::span<const Shape> inputs) const override;
  bool is_loss() const override { return true; }
};

/// The mean over samples and spatial positions of -log softmax(x[N C ...])[label], as CrossEntropy weighs them.
class CrossEntropyOperator final : public LossOperator {
 public:
  explicit CrossEntropyOperator(CrossEntropy labels = {}) : labels_(std::move(labels)) {}
  std::string_view kind() const override { return "softmax_cross_entropy"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  const CrossEntropy& labels() const { return labels_; }
  /// Maxima and sums read x, and the gradient reads x and writes dx.
  MemoryPasses memory_passes(bool /*training*/) const override { return {.x = 2, .y = 0, .dx = 2, .dy = 0}; }
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  HeldNumbers numbers(const Layout& x, int rank, bool training) const override;
  Target target(const Shape& x) const override;
  /// The numbers of a row (Backend::cross_entropy_sums).
  Index row_numbers() const { return labels_.smoothing > 0 ? 5 : 4; }

 private:
  CrossEntropy labels_;
};

/// 1 - the mean over samples and channels of (2 sum p g + 1)/(sum p + sum g + 1), where the sums run over spatial
/// positions, p = softmax(x[N C ...]), and g is 1 in the label's channel and 0 elsewhere (Milletari et al. 2016, with
/// sums of p instead of squares).
class DiceOperator final : public LossOperator {
 public:
  explicit DiceOperator(Dice labels = {}) : labels_(labels) {}
  std::string describe() const override;
  std::string_view kind() const override { return "softmax_dice"; }
  MemoryPasses memory_passes(bool /*training*/) const override { return {.x = 1, .y = 0, .dx = 2, .dy = 0}; }
  HeldNumbers numbers(const Layout& x, int rank, bool training) const override;
  Shape output(std::span<const Shape> inputs) const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  Target target(const Shape& x) const override;

 private:
  Dice labels_;
};

/// The mean over all elements of (x - target)^2 or of |x - target|.
class DifferenceOperator final : public LossOperator {
 public:
  explicit DifferenceOperator(bool absolute) : absolute_(absolute) {}
  std::string_view kind() const override { return absolute_ ? "mean_absolute_error" : "mean_squared_error"; }
  /// Each pass reads the targets too.
  MemoryPasses memory_passes(bool /*training*/) const override { return {.x = 2, .y = 0, .dx = 3, .dy = 0}; }
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  Target target(const Shape& x) const override { return {x, false}; }
  bool absolute() const { return absolute_; }

 private:
  bool absolute_;
};

}  // namespace partita
