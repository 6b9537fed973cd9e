#pragma once

#include "partita/base/activation.hpp"
#include "partita/model/operator.hpp"

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace partita {

/// One value per spatial dimension (D H W), or a single value for all of them.
class PerDim {
 public:
  PerDim(Index all) : values_{all} {}  // NOLINT(google-explicit-constructor)
  PerDim(std::initializer_list<Index> each) : values_(each) {}
  Index operator[](std::size_t i) const { return values_.size() == 1 ? values_[0] : values_.at(i); }
  std::size_t values() const { return values_.size(); }
  /// Throws Error that names `what` unless there is one value or `dims` values, each at least `least` and less than
  /// 2^31.
  void check(std::size_t dims, std::string_view what, Index least) const;

 private:
  std::vector<Index> values_;
};

/// Padding of one dimension: the same on both sides, or one value per side.
struct Sides {
  Index lo = 0, hi = 0;
  Sides(Index both) : lo(both), hi(both) {}  // NOLINT(google-explicit-constructor)
  Sides(Index below, Index above) : lo(below), hi(above) {}
};

/// Padding of the spatial dimensions: `1`, `{1, 2}` (one per dimension), `{{0, 1}, {2, 2}}` (one per dimension and
/// side).
class Padding {
 public:
  Padding(Index all) : values_{Sides(all)} {}  // NOLINT(google-explicit-constructor)
  Padding(std::initializer_list<Sides> each) : values_(each) {}
  const Sides& operator[](std::size_t i) const { return values_.size() == 1 ? values_[0] : values_.at(i); }
  std::size_t values() const { return values_.size(); }
  /// Throws Error that names `what` unless there is one value or `dims` values, none of them negative, and all less
  /// than 2^31.
  void check(std::size_t dims, std::string_view what = "padding") const;

 private:
  std::vector<Sides> values_;
};

/// An input layer: samples as the data set delivers them, x[N C D H W] or, for sequences, x[N C L].
struct Input {
  Index channels = 1;
  std::vector<Index> spatial = {};  ///< extents of up to three spatial dimensions
  Index length = 0;                 ///< number of places of a sequence; 0: the input is not a sequence
  bool tokens = false;              ///< x holds whole numbers from 0 on: tokens, or segments of attention
};

/// y = conv(x, w) + b: every output reads a window of every channel.
struct Conv {
  Index filters = 1;
  PerDim kernel = 1;
  PerDim stride = 1;
  Padding padding = 0;
  PerDim dilation = 1;
  /// channel groups with separate filters; must divide channels and filters. groups = channels: depthwise
  Index groups = 1;
  bool bias = true;
};

/// The adjoint of a convolution with these windows. It maps the shape of that convolution's y to the shape of its x:
/// every input adds to a window of the output (Dumoulin and Visin 2016). Output extent: (x - 1) stride - padding +
/// dilation (kernel - 1) + 1 + output_padding.
struct ConvTranspose {
  Index filters = 1;  ///< output channels
  PerDim kernel = 1;
  PerDim stride = 1;
  Padding padding = 0;        ///< removed from the output
  PerDim output_padding = 0;  ///< extra outputs at the upper end; less than the stride or the dilation
  PerDim dilation = 1;
  Index groups = 1;
  bool bias = true;
};

/// Maximum (padding counts as minus infinity) or average over a window.
struct Pool {
  PerDim window = 2;
  std::optional<PerDim> stride = std::nullopt;  ///< the window's size if not given
  Padding padding = 0;
  PerDim dilation = 1;
  bool count_padding = false;  ///< average pooling: count padding as zeros; otherwise count only real inputs
};

/// The samples over which batch normalization computes its statistics in training.
enum class Statistics : std::uint8_t {
  global,  ///< the whole microbatch: the result does not depend on the layout
  /// each rank's own part: the result depends on the layout. Only the running statistics are summed over ranks
  local,
  along,  ///< the parts of the ranks along some axes of the grid: between `global` and `local`
  ranks,  ///< the parts of at most so many ranks that are neighbors: those along the last axes of the grid
};

/// y = scale * (x - mean)/sqrt(variance + epsilon) + shift, per channel.
struct BatchNorm {
  double epsilon = 1e-5;
  /// running = (1-momentum) * running + momentum * batch. The variance of the batch, of n elements, counts here with
  /// n/(n-1) of its value: it is unbiased, as in PyTorch
  double momentum = 0.1;
  Statistics statistics = Statistics::global;
  std::vector<std::string> axes = {};  ///< axes for Statistics::along; they may be missing from a grid of one rank
  int ranks = 1;                       ///< for Statistics::ranks; all ranks if there are no more
};

/// y = scale * (x - mean)/sqrt(variance + epsilon) + shift, with statistics per sample and group of channels, over all
/// spatial positions (Wu and He 2018).
struct GroupNorm {
  Index groups = 32;  ///< number of groups of equal size; must divide the channels
  double epsilon = 1e-5;
};

/// y = scale * (x - mean)/sqrt(variance + epsilon) + shift, per channel, with statistics over all channels and
/// positions of a sample (Ba et al. 2016).
struct LayerNorm {
  double epsilon = 1e-5;
  bool per_place = false;  ///< true: over the channels of each place alone, as transformers do
};

/// y = scale * x/sqrt(mean of x^2 + epsilon), per channel, with means over the channels of each place (Zhang and
/// Sennrich 2019).
struct RmsNorm {
  double epsilon = 1e-5;
};

/// y[N F L] = table[token of x[N L], F]: a vector of features for each token.
struct Embedding {
  Index vocabulary = 1;  ///< number of different tokens: 0 to vocabulary - 1
  Index features = 1;
  double deviation = 0.02;  ///< of the initial values (Radford et al., "Language Models are Unsupervised Multitask
                            ///< Learners", 2019)
};

/// y[N F L] = the sum over the places p of a bag of w[index x[N p L], F, L]: each of the L tables gives the sum, or the
/// mean, of the rows that its bag names. Tables of other sizes are another layer.
struct Tables {
  Index rows = 1;  ///< of each table; indices are 0 to rows - 1
  Index features = 1;
  bool mean = false;     ///< the mean of the rows instead of their sum
  double deviation = 0;  ///< of the initial values; 0: 1/sqrt(3 rows) (Naumov et al., "Deep Learning Recommendation
                         ///< Model for Personalization and Recommendation Systems", 2019)
};

/// y[N C L] = x[N C L] + w[C L]: a learned vector of features for each place.
struct Positions {
  Index places = 0;         ///< of the table w; 0: as many as x has. More than x has serve other lengths of sequences
  double deviation = 0.02;  ///< of the initial values
};

/// y[N F L] = attention of x[N C L]. The channels of x are groups of heads, each with `dim` channels: for each group
/// its queries, which are heads / groups heads, then one head of keys, then one of values. So C = (heads + 2 groups)
/// dim and F = heads dim. Where all are cut over ranks in whole groups, nothing is sent.
struct Attention {
  Index heads = 1;   ///< heads of queries
  Index groups = 0;  ///< heads of keys, and of values; must divide `heads` (Ainslie et al. 2023); 0: as many as `heads`
  bool causal = false;  ///< a place sees itself and the places before it
  double dropout = 0;   ///< in training, the share of weights of pairs of places that are left out, in [0, 1)
};

/// Turns the queries and keys of x[N C L], with channels as those of Attention, by angles that grow with the place (Su
/// et al. 2021). The values stay as they are.
struct Rotary {
  Index heads = 1;   ///< as in Attention
  Index groups = 0;  ///< as in Attention
  double base = 10000;
};

/// How the places of a sequence choose experts and return from them (Shazeer et al., "Outrageously Large Neural
/// Networks", 2017). Each place chooses the experts with its largest scores; of equal ones the first. Of a sample, each
/// expert has slots = capacity * chosen * places / experts, rounded up, but no more than places. It takes the first
/// places that chose it, as many as it has slots; those behind them are dropped, so they get nothing from it. So a
/// sample's result does not depend on other samples, nor on how they are cut.
struct Experts {
  Index experts = 1;  ///< as many as the scores have channels
  Index chosen = 1;   ///< experts of each place
  /// by which factor an expert has more slots than its even share; no place is dropped from experts / chosen on
  double capacity = 1.25;
  /// The gate of a chosen expert, by which its result is multiplied, is its probability: the softmax over the scores of
  /// all experts (false; Fedus et al. 2022), or over those of the chosen ones (true; Lepikhin et al. 2021). With one
  /// chosen expert the latter is 1.
  bool normalized = false;
  /// The factor of a loss that balances the experts, in `combine`: the mean over samples of experts * sum over e of
  /// f[e] * p[e]. f[e] is the share of the sample's choices that fell on e, and p[e] the mean of e's probabilities over
  /// the places (Fedus et al. 2022). The gradients have it, the printed loss does not. Where labels count for less than
  /// 1 (CrossEntropy), it is divided by the mean of their weights, as all gradients are.
  double balance = 0;
};

/// How Upsample computes outputs that lie between inputs.
enum class Interpolation : std::uint8_t { nearest, linear };

/// `scale` outputs per input in each spatial dimension. Linear interpolation weighs the two inputs around the center of
/// an output.
struct Upsample {
  PerDim scale = 2;
  Interpolation interpolation = Interpolation::nearest;
};

/// y[N F] = f(x[N C D H W] * w[F C D H W] + b): contracts all dimensions of a sample at once, so no flattening is
/// needed. With `per_place`, y[N F L] = x[N C L] * w[F C] + b contracts the channels alone.
struct Linear {
  Index features = 1;
  bool bias = true;
  /// f, applied in the same kernel that computes y. It is refused per place: there, a layer of its own behind this one
  /// is computed with it
  std::optional<Activation> activation = std::nullopt;
  /// true: each place of a sequence, or position of an image, is multiplied on its own: y[N F L] and w[F C]
  bool per_place = false;
  double deviation = 0;  ///< standard deviation of the initial weights; 0: sqrt(2 / fan-in), He et al. 2015
  /// per place: groups of channels with separate weights, w[F C/groups], e.g. of experts; must divide channels and
  /// features
  Index groups = 1;
  /// per place: the embedding, a layer before it, whose table w[V C] is its weight too (Press and Wolf, "Using the
  /// Output Embedding to Improve Language Models", 2017). V are the features, and the layer draws no weight but its
  /// bias. A table is tied to one layer. Empty: a weight of its own
  std::string tied_to = {};
};

/// How the labels of a cross-entropy count. The loss is the sum over labels y of weights[y] * -log p[y], divided by the
/// sum of weights[y]; 0 if nothing counts. Both sums run over the whole batch, however it is cut.
struct CrossEntropy {
  std::optional<Index> ignored = std::nullopt;  ///< the label that counts for nothing, e.g. -100
  std::vector<double> weights = {};             ///< one for each class; empty: 1 each
  /// the share of a label's loss that all classes have together: 1 - smoothing of it is the label's own, and
  /// weights[c] * -log p[c] of each class c counts with smoothing / classes (Szegedy et al. 2016)
  double smoothing = 0;
};

/// How the labels of a Dice loss count.
struct Dice {
  std::optional<Index> ignored = std::nullopt;  ///< the label of positions that no sum counts, e.g. -100
};

/// y = x/(1-rate), or 0 with probability `rate`. The draw depends on seed, layer, step and global index. In evaluation
/// y = x.
struct Dropout {
  double rate = 0.5;
};

}  // namespace partita
