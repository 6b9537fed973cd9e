#pragma once

#include "partita/backend/conv_problem.hpp"
#include "partita/backend/labels.hpp"
#include "partita/backend/sequences.hpp"
#include "partita/base/activation.hpp"
#include "partita/base/optimizer.hpp"
#include "partita/base/philox.hpp"
#include "partita/base/resampling.hpp"
#include "partita/base/routing.hpp"
#include "partita/base/window.hpp"
#include "partita/device/tensor.hpp"

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace partita {

/// How a kernel writes its result.
enum class Write : std::uint8_t {
  over,  ///< overwrites: result = value
  add,   ///< accumulates: result += value
};

enum class PoolKind : std::uint8_t { max, average };

/// A pooling operator: one window per spatial dimension, and whether an average counts padding.
struct Pooling {
  PoolKind kind = PoolKind::max;
  std::span<const Window> windows;
  bool count_padding =
      false;  ///< average only: true divides by the whole window, padding included; false by the inputs it covers
};

/// Contiguous elements of one weight on one rank, in the master dtype (f64 or f32), for an optimizer. Addresses are on
/// the device.
struct WeightPiece {
  DType dtype = DType::f64;
  Index count = 0;
  const std::byte* dw = nullptr;
  std::byte* w = nullptr;
  std::array<std::byte*, 2> state{};  ///< in the order of Optimizer::states
  bool decays = true;                 ///< weight decay and the scale by norms apply
  std::byte* rounded = nullptr;       ///< a copy of w in a shorter type, which an update writes too; null: none
  DType rounded_type = DType::bf16;   ///< bf16 or f16
};

/// What is done to each element right after it is computed: y = f(sum + bias[c]).
struct Epilogue {
  Epilogue() = default;
  Epilogue(Tensor the_bias, std::optional<Activation> f = {}) : bias(std::move(the_bias)), activation(f) {}
  Tensor bias;  ///< may be empty
  std::optional<Activation> activation;
};

/// The gradient of a layer's output, and the output if ReLU was computed with it: then the gradient counts as 0 where
/// the output is 0.
struct MaskedGradient {
  MaskedGradient(Tensor gradient, Tensor passed = {})  // NOLINT(google-explicit-constructor)
      : dy(std::move(gradient)), y(std::move(passed)) {}
  Tensor dy;
  Tensor y;  ///< may be empty
};

/// The running mean and variance of a normalization. With n elements, of mean m and variance v, they become
/// keep * mean + add * m and keep * variance + add * v * n/(n-1).
struct RunningStatistics {
  Tensor mean, variance;  ///< of one dtype; empty if there are none
  double keep = 1, add = 0;
};
/// Where the gradients of scale and shift of a normalization go, and the sums from which they come
/// (Backend::channel_gradient_sums); without sums, none are wanted.
struct NormWeightGradients {
  Tensor sums, dscale, dshift;
  Write write = Write::add;
};
/// Where the gradients of scale and shift of a normalization of rows go; without dscale, none are wanted.
struct RowNormWeights {
  Tensor dscale, dshift;  ///< without a shift, dshift is empty
  Write write = Write::add;
};
/// Returns what a variance of `count` elements is multiplied by so that it is unbiased.
constexpr double unbiased(Index count) {
  return count > 1 ? static_cast<double>(count) / static_cast<double>(count - 1) : 1;
}

/// The algorithm of a convolution that computes the two halves of its batch one after the other, each with the
/// algorithm that is chosen for the half. Half a batch needs less scratch memory, so that a faster algorithm may fit;
/// a half may be halved again (Oyama et al., "Accelerating Deep Learning Frameworks with Micro-Batches", 2018).
constexpr std::string_view two_halves = "two halves";

/// The local kernels of one rank. A tensor carries its box in global coordinates, and the boxes define every operator:
/// it computes exactly the elements in its output's box. Outside its box a tensor counts as zero (for maximum pooling:
/// minus infinity). Therefore padding, halos, interior and boundary all use the same call. Empty boxes are allowed
/// everywhere. Windows slide over the dimensions after N and C. All tensors of one call share a dtype. Sums are formed
/// in double for f64 and in float for all other dtypes. Results depend only on values and boxes, so replicas agree bit
/// for bit.
class Backend {
 public:
  virtual ~Backend() = default;
  /// Returns e.g. "reference" or "onednn".
  virtual std::string_view name() const = 0;
  /// Returns all that decides which of its algorithms is the fastest on one processor: the name and, for a backend that
  /// uses a library, the library's version and the instructions that it may use.
  virtual std::string describe() const { return std::string(name()); }
  /// The device in whose memory the tensors of all calls lie.
  virtual Device& device() const { return host_device(); }
  /// The bytes of that memory that its kernels hold all the time.
  virtual Index workspace() const { return 0; }
  /// Throws Error if the backend cannot compute in `dtype`; the message names a backend that can.
  virtual void check(DType dtype) const = 0;

  /// Returns the algorithms with which this backend can compute a convolution. The backend's default comes first. The
  /// vector is empty if there is no choice.
  virtual std::vector<std::string_view> algorithms(const ConvProblem& /*problem*/) const { return {}; }
  /// Sets the algorithm that the backend uses for `problem` from now on. Throws Error if `algorithm` is not one of
  /// algorithms().
  virtual void choose(const ConvProblem& problem, std::string_view algorithm);
  /// Releases the algorithms that choose() keeps, except those that are in use. While choose() is called for one
  /// problem it keeps all algorithms that were chosen for that problem, so that a caller can try them in turns. This
  /// call drops all but the last one, and the scratch memory of the kernels.
  virtual void forget_tried() {}

  /// The dtype whose convolutions have algorithms() to choose from.
  virtual DType chosen_dtype() const { return DType::f32; }

  // Convolution: x[N C ...], w[F C ...], bias[F] (may be empty), y[N C ...]. The n-th channel of y is computed with the
  // n-th filter (F) of w. If w has fewer channels than x, the convolution is grouped: the channels of x are split into
  // groups of w's channel count, and the filters are split, in order, among the groups.

  /// y = conv(x, w) + bias
  virtual void conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Tensor& bias,
                            const Tensor& y, Stream stream) = 0;
  /// dx = conv'(dy, w): the gradients of all inputs in dx's box, from the outputs in dy's box
  virtual void conv_backward_data(std::span<const Window> windows, const Tensor& dy, const Tensor& w, const Tensor& dx,
                                  Stream stream) = 0;
  /// dw = conv'(x, dy), or dw += conv'(x, dy)
  virtual void conv_backward_filter(std::span<const Window> windows, const Tensor& x, const Tensor& dy,
                                    const Tensor& dw, Write write, Stream stream) = 0;
  /// y += bias[c]; bias has one dimension
  virtual void bias_forward(const Tensor& bias, const Tensor& y, Stream stream) = 0;
  /// db[c] = sum of dy over all dimensions except C, or db += this sum; db has one dimension
  virtual void bias_backward(const Tensor& dy, const Tensor& db, Write write, Stream stream) = 0;

  /// True if fused_conv_forward and fused_gemm apply f without a pass of their own over y.
  virtual bool fuses(const Activation& /*f*/) const { return false; }
  /// y = f(conv(x, w) + bias). The default is conv_forward and then apply, in short types with a rounding between them.
  virtual void fused_conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w,
                                  const Epilogue& epilogue, const Tensor& y, Stream stream);
  /// y = f(y + bias[c])
  void apply(const Epilogue& epilogue, const Tensor& y, Stream stream);

  // Pooling. `picked` (i32, with y's box) stores which input of each window was the maximum, for the backward pass.
  // Average pooling does not use it.

  /// y = pool(x), the outputs in `part` of y's box. x must hold all inputs inside the global tensor that their windows
  /// cover.
  virtual void pool_forward(const Pooling& pooling, const Tensor& x, const Tensor& y, const Tensor& picked,
                            const Box& part, Stream stream) = 0;
  /// dx += pool'(dy), what the outputs in `part` of dy's box contribute. dx holds all inputs that they read.
  virtual void pool_backward(const Pooling& pooling, const Tensor& dy, const Tensor& picked, const Tensor& dx,
                             const Box& part, Stream stream) = 0;

  // Normalization. It is split into steps, since its sums are taken across ranks. Its numbers are f64 tensors S N C
  // (`norm_numbers`): S numbers for each part n of x and each channel c. A part is either all of x (batch
  // normalization) or one sample (group normalization). C is the number of x's channels, or of groups of as many
  // neighboring channels. With r = 1/sqrt(variance + epsilon) and xhat = (x - mean) * r:

  /// With the deviation d of x from a center of its part and group, the median of three of their elements: sums[0,n,c]
  /// = sum of d, sums[1,n,c] = sum of d^2, over the elements of part n that have channel c. `groups` is the number of
  /// groups of channels. Squares of x itself would lose the variance in their rounding if the mean is large.
  virtual void channel_sums(const Tensor& x, Index groups, const Tensor& sums, Stream stream) = 0;
  /// sums[0,n,c] = sum of dy, sums[1,n,c] = sum of dy * xhat
  virtual void channel_gradient_sums(const Tensor& x, const MaskedGradient& dy, const Tensor& statistics,
                                     const Tensor& sums, Stream stream) = 0;
  /// grouped[s,n,g] = sum over the channels c of group g of scale[c] * sums[s,n,c]; without `scale` if it is empty
  virtual void group_channels(const Tensor& sums, const Tensor& scale, const Tensor& grouped, Stream stream) = 0;
  /// dscale[c] = sum over the parts n of sums[1,n,c], dshift[c] = sum over n of sums[0,n,c]; or += with Write::add.
  virtual void norm_weight_gradients(const NormWeightGradients& to, Stream stream) = 0;
  /// moments[0] + moments[1] = sum of x, moments[2] + moments[3] = sum of x^2, from channel_sums of x over `own`
  /// elements each. All ranks together have `count` elements: the four numbers add up over ranks, in any order, and
  /// keep the variance.
  virtual void norm_moments(const Tensor& x, const Tensor& sums, Index own, Index count, const Tensor& moments,
                            Stream stream) = 0;
  /// statistics[0] = mean, statistics[1] = variance, statistics[2] = r, from norm_moments of `count` elements each. If
  /// `count` is 0, the mean is 0 and the variance is 1. Advances the running statistics, if there are any; then there
  /// is one part.
  virtual void norm_statistics(const Tensor& moments, Index count, double epsilon, const RunningStatistics& running,
                               const Tensor& statistics, Stream stream) = 0;
  /// channel_sums, norm_moments and norm_statistics at once, where each channel of x has statistics of its own and no
  /// other rank adds to them.
  virtual void channel_statistics(const Tensor& x, double epsilon, const RunningStatistics& running,
                                  const Tensor& statistics, Stream stream) = 0;
  /// The same numbers from a mean and a variance of each channel, for one part.
  virtual void given_statistics(const Tensor& mean, const Tensor& variance, double epsilon, const Tensor& statistics,
                                Stream stream) = 0;
  /// y = scale[c] * xhat + shift[c], then ReLU of it if `relu`
  virtual void norm_forward(const Tensor& x, const Tensor& statistics, const Tensor& scale, const Tensor& shift,
                            bool relu, const Tensor& y, Stream stream) = 0;
  /// dx = r * (scale[c] * dy - (first + xhat * second) / count). first and second are sums[0] and sums[1] if these are
  /// sums of scale * dy (`scaled`), else scale[c] times them. Also computes `weights`, if any are wanted.
  virtual void norm_backward(const Tensor& x, const MaskedGradient& dy, const Tensor& statistics, const Tensor& sums,
                             bool scaled, const Tensor& scale, Index count, const Tensor& dx,
                             const NormWeightGradients& weights, Stream stream) = 0;

  /// y[n,c] = scale * sum over space of x[n,c,...]; y is N C
  virtual void spatial_sum(const Tensor& x, double scale, const Tensor& y, Stream stream) = 0;
  /// The adjoint of spatial_sum: dx[n,c,...] = scale * dy[n,c]
  virtual void spatial_spread(const Tensor& dy, double scale, const Tensor& dx, Stream stream) = 0;

  /// y = resample(x), with one Resampling per spatial dimension. x must hold all inputs that y is computed from.
  virtual void resample_forward(std::span<const Resampling> dims, const Tensor& x, const Tensor& y, Stream stream) = 0;
  /// The adjoint of resample_forward: dx += resample'(dy)
  virtual void resample_backward(std::span<const Resampling> dims, const Tensor& dy, const Tensor& dx,
                                 Stream stream) = 0;
  /// Moves the elements of each spatial block of x into channels of y. The element at position (i, j) in its block and
  /// channel c of x becomes channel (c i j) of y, with j varying fastest. `block` has one extent per spatial dimension.
  /// x must hold all blocks of y.
  virtual void space_to_depth(std::span<const Index> block, const Tensor& x, const Tensor& y, Stream stream) = 0;
  /// The inverse of space_to_depth: copies the channels of dy to the positions in the blocks of dx.
  virtual void depth_to_space(std::span<const Index> block, const Tensor& dy, const Tensor& dx, Stream stream) = 0;

  // Sequences x[N C L], and any other tensor of rows: each row has the channels of one place. Places are the
  // coordinates of a box along L.

  /// y = the normalized rows of x; scale and shift have one dimension, and shift may be empty
  virtual void row_norm_forward(const RowNorm& norm, const Tensor& x, const Tensor& scale, const Tensor& shift,
                                const Tensor& y, Stream stream) = 0;
  /// dx = the gradient of row_norm_forward, plus `added` if that is given; dx may be empty, and may be `added` itself.
  /// Also computes `weights`, if any are wanted.
  virtual void row_norm_backward(const RowNorm& norm, const Tensor& x, const Tensor& dy, const Tensor& scale,
                                 const Tensor& added, const Tensor& dx, const RowNormWeights& weights,
                                 Stream stream) = 0;
  /// y[n,c,l] = scale * the sum of table[v,c] over the tokens v of a bag; a table[V C L] has rows of its own for each
  /// place. Rows that the box of the table lacks count as 0. `tokens` (i32) has equally many numbers, a bag, for each
  /// row of y, in the same order. A token outside [0, vocabulary) gives an Error, or on a device NaN.
  virtual void embed_forward(const Tensor& tokens, Index vocabulary, const Tensor& table, double scale, const Tensor& y,
                             Stream stream) = 0;
  /// dtable[v,c] (or [v,c,l]) = scale * the sum of dy[n,c,l] over the tokens v, in the order of tokens; or += with
  /// Write::add.
  virtual void embed_backward(const Tensor& tokens, const Tensor& dy, double scale, const Tensor& dtable, Write write,
                              Stream stream) = 0;
  /// The channels of each place of x[N C L] are `heads` rows of scores, one score for each of places from 0 on. x = the
  /// softmax of each row. With `causal`, the scores of later places count as minus infinity; so do those of places with
  /// another number in `segments` (HeadShape), unless this is empty.
  virtual void softmax_heads(Index heads, bool causal, const Tensor& segments, const Tensor& x, Stream stream) = 0;
  /// The gradient of softmax_heads, and of a dropout behind it that made `dropped` of y (else y itself), times `scale`:
  /// dx = scale * (dropped * dx - y * sum over the row of dropped * dx). An element of `dropped` is 0, or y times a
  /// factor.
  virtual void softmax_heads_backward(Index heads, double scale, const Tensor& y, const Tensor& dropped,
                                      const Tensor& dx, Stream stream) = 0;
  /// y[n] = the channels of dense[n], then z_i * z_j for all vectors j < i, in the order of i and then of j, where z_0
  /// is dense[n] and z_i the place i - 1 of vectors[n].
  virtual void interact_forward(const Tensor& vectors, const Tensor& dense, const Tensor& y, Stream stream) = 0;
  /// dvectors and ddense = the gradients of interact_forward
  virtual void interact_backward(const Tensor& vectors, const Tensor& dense, const Tensor& dy, const Tensor& dvectors,
                                 const Tensor& ddense, Stream stream) = 0;
  /// y[n,c,l] = f(x[n,2c,l]) * x[n,2c+1,l] (Shazeer, "GLU Variants Improve Transformer", 2020)
  virtual void gate_forward(const Activation& f, const Tensor& x, const Tensor& y, Stream stream) = 0;
  /// dx = the gradient of gate_forward
  virtual void gate_backward(const Activation& f, const Tensor& x, const Tensor& dy, const Tensor& dx,
                             Stream stream) = 0;
  /// y = x with heads turned; x and y may be one tensor
  virtual void rotate(const Rotation& rotation, const Tensor& x, const Tensor& y, Stream stream) = 0;
  /// y[n,h,l] = sum over places m of exp(s[l,m] - lse[n,h,l]) v[n,g,m], with s[l,m] = scale * q[n,h,l] . k[n,g,m],
  /// group g of head h, and lse = log of the sum over m of exp(s[l,m]). m are the places of k's box that place l sees;
  /// where it sees none, y = 0 and lse = -infinity. With Write::add, y and lse hold the results for other places m, and
  /// become those for all of them. The heads of y[N C L] and the numbers of lse[N C L], one a head, follow one another.
  /// lse is f64, or f32 if q is not f64; y has the dtype of q or of lse. Needs no memory for all pairs of places (Dao
  /// et al., "FlashAttention", 2022).
  virtual void attention_forward(const HeadShape& shape, const Heads& q, const Heads& k, const Heads& v,
                                 const Tensor& y, const Tensor& lse, Write write, Stream stream) = 0;
  /// Adds results of attention_forward for other places m: for places of more_y, y and lse become those over both sets
  /// of places m. more_y and more_lse have the channels of y and lse, and some or all of their places. All are f64, or
  /// all are f32.
  virtual void attention_merge(const Tensor& more_y, const Tensor& more_lse, const Tensor& y, const Tensor& lse,
                               Stream stream) = 0;
  /// The gradient of attention_forward: what k's places contribute to dq, and to dk and dv; all three = or +=. y and
  /// lse are the results over all places. dq, dk and dv have the dtype of q or of lse.
  virtual void attention_backward(const HeadShape& shape, const Heads& q, const Heads& k, const Heads& v,
                                  const Tensor& y, const Tensor& dy, const Tensor& lse, const Heads& dq,
                                  const Heads& dk, const Heads& dv, Write write, Stream stream) = 0;

  // Experts (Routing). Slots are places of a tensor N (E C) L in which each expert has C channels of its own, so that
  // channel e C + c at place s is channel c of what expert e has in its slot s. `routes` (i32) has Routing::numbers()
  // numbers for each sample: for each place the experts that it chose, the best one first; for each place and choice
  // its slot; for each slot and expert the place; for each expert the number of places that chose it. Slots and places
  // count from 1, and 0 says that there is none. Numbers that nothing needs are 0.

  /// Writes the routes of scores[N E L], and their gates[N K L] (f64), one for each of K choices, unless `gates` is
  /// empty.
  virtual void route(const Routing& routing, const Tensor& scores, const Tensor& routes, const Tensor& gates,
                     Stream stream) = 0;
  /// y[N (E C) S] = the places of x[N C L] in their slots; 0 in slots that have none
  virtual void dispatch_forward(const Routing& routing, const Tensor& routes, const Tensor& x, const Tensor& y,
                                Stream stream) = 0;
  /// dx = the gradient of dispatch_forward: the sum over a place's slots
  virtual void dispatch_backward(const Routing& routing, const Tensor& routes, const Tensor& dy, const Tensor& dx,
                                 Stream stream) = 0;
  /// y[N C L] = the sum over a place's slots of gate * x[N (E C) S]; 0 for a place without slots
  virtual void combine_forward(const Routing& routing, const Tensor& routes, const Tensor& gates, const Tensor& x,
                               const Tensor& y, Stream stream) = 0;
  /// dx and dscores = the gradients of combine_forward. To dscores it adds `balance` times the gradient of the sum over
  /// samples of E * sum over e of f[e] * p[e], where f[e] is the share of the sample's choices that fell on expert e,
  /// which counts as a constant, and p[e] the mean of e's probabilities (Fedus et al., "Switch Transformers", 2022).
  virtual void combine_backward(const Routing& routing, const Tensor& routes, const Tensor& gates, const Tensor& scores,
                                const Tensor& x, const Tensor& dy, double balance, const Tensor& dx,
                                const Tensor& dscores, Stream stream) = 0;

  // Element-wise functions.

  /// y = a + b, then ReLU of it if `relu`; y may be a or b
  virtual void sum(const Tensor& a, const Tensor& b, bool relu, const Tensor& y, Stream stream) = 0;
  /// y = f(x); x and y may be one tensor
  virtual void activation_forward(const Activation& f, const Tensor& x, const Tensor& y, Stream stream) = 0;
  /// dx = f'(x) * dy; `kept` is y if f.differentiates_value(), else x
  virtual void activation_backward(const Activation& f, const Tensor& kept, const Tensor& dy, const Tensor& dx,
                                   Stream stream) = 0;
  /// y = x / (1 - rate), or 0 where random.at_step(step[0]).uniform(first + i) < rate. i is the element's row-major
  /// index in the shape `whole`, so that the numbers do not depend on the layout. `step` is one f64 number on the
  /// device, so that a captured dropout draws other numbers in each step. If `added` is given, y is its sum with that.
  /// y may be x or `added`.
  virtual void dropout(double rate, const Random& random, const Tensor& step, Index first, const Shape& whole,
                       const Tensor& x, const Tensor& added, const Tensor& y, Stream stream) = 0;

  // Matrix product, row-major: C[m,n] = alpha * op(A) op(B) + beta * C, where op transposes if the flag says so.
  // lda, ldb and ldc are the distances between rows, in elements.
  virtual void gemm(DType dtype, bool transpose_a, bool transpose_b, Index m, Index n, Index k, double alpha,
                    const void* a, Index lda, const void* b, Index ldb, double beta, void* c, Index ldc,
                    Stream stream) = 0;
  /// C[m,n] = f(op(A) op(B) + bias[n]), for a whole tensor of rows. The default is gemm and then apply.
  virtual void fused_gemm(bool transpose_a, bool transpose_b, Index m, Index n, Index k, const void* a, Index lda,
                          const void* b, Index ldb, const Epilogue& epilogue, const Tensor& c, Stream stream);

  // Losses. `result` holds two f64 numbers: each call adds the loss to result[0], and the number of right predictions
  // to result[1]. If it holds four, the weight of the loss is added to result[2], and the number of rows that count to
  // result[3]. x[N C ...] is read as rows of channels, in the order of x's memory. `labels` has one number for each
  // row, in the same order. A prediction is right if the label's entry is the largest of its row, and its label counts.
  // A label that is no channel, nor the one that counts for nothing, gives an Error, or on a device a loss that is NaN.

  // Cross-entropy, the sum over rows of weight[label] * -log softmax(x)[label], where the channels of a row may lie on
  // several ranks: the box of x holds some of the classes. With smoothing s, a row's loss is (1 - s) times that, plus
  // s / classes * sum over classes of weight[c] * -log softmax(x)[c]. `numbers` (f64) holds Labels::numbers() numbers
  // for each row: the first ones of all rows, then the second ones, and so on. Between the calls the ranks take the
  // maxima and the sums of their numbers.

  /// numbers[0,row] = the largest entry of the row; -infinity if x has no channels.
  virtual void cross_entropy_maxima(const Tensor& x, const Labels& labels, const Tensor& numbers, Stream stream) = 0;
  /// With the maximum m = numbers[0,row] over all classes: numbers[1,row] = sum of exp(x - m), numbers[2,row] = the
  /// label's entry, or 0 if x lacks it, numbers[3,row] = the number of entries before the label's that are m.
  /// With smoothing also numbers[4,row] = sum of weight * (x - m).
  virtual void cross_entropy_sums(const Tensor& x, const Labels& labels, const Tensor& numbers, Stream stream) = 0;
  /// The loss is the sum over rows, from the numbers of all classes, / count; and so is its weight, the sum of the
  /// weights of labels.
  virtual void cross_entropy_loss(const Labels& labels, const Tensor& numbers, double count, const Tensor& result,
                                  Stream stream) = 0;
  /// dx = scale * gradient of the sum over rows: weight[label] * (softmax(x) - onehot(label)), without smoothing.
  virtual void cross_entropy_backward(const Tensor& x, const Labels& labels, const Tensor& numbers, double scale,
                                      const Tensor& dx, Stream stream) = 0;
  /// The sums of the Dice loss. With p = softmax(x) and g = onehot(label), for each sample and channel:
  /// sums[0,n,c] = sum of p * g, sums[1,n,c] = sum of p + g, over the rows that count. Adds to result[1] and [3] only.
  virtual void overlap_forward(const Tensor& x, const Labels& labels, const Tensor& sums, const Tensor& result,
                               Stream stream) = 0;
  /// The loss is the sum over samples and channels of (1 - (2 sums[0] + 1)/(sums[1] + 1)) / count. It is added unless
  /// `result` is empty, and its weight is the number of these / count. Then each sum becomes `scale` times the
  /// derivative of the loss by it.
  virtual void overlap_loss(const Tensor& sums, double count, double scale, const Tensor& result, Stream stream) = 0;
  /// dx = the gradient of the sum over samples and channels of derivatives[0] * sums[0] + derivatives[1] * sums[1]
  virtual void overlap_backward(const Tensor& x, const Labels& labels, const Tensor& derivatives, const Tensor& dx,
                                Stream stream) = 0;
  /// The loss is the sum of (x - target)^2 / count, or of |x - target| / count if `absolute`. The target has the same
  /// dtype, dimensions and extents as x.
  virtual void difference_forward(bool absolute, const Tensor& x, const Tensor& target, double count,
                                  const Tensor& result, Stream stream) = 0;
  /// dx = scale * gradient of the sum of differences; 0 where x equals the target.
  virtual void difference_backward(bool absolute, const Tensor& x, const Tensor& target, double scale, const Tensor& dx,
                                   Stream stream) = 0;

  // Numbers of any tensor. x and y hold as many elements, which pair up in the order of memory.

  /// x (f64) = values, which need not stay.
  virtual void write_numbers(std::span<const double> values, const Tensor& x, Stream stream) = 0;
  /// y = b * y + a * x, computed in double and rounded once; y = a * x if b is 0. x and y may be one tensor.
  virtual void axpby(double a, const Tensor& x, double b, const Tensor& y, Stream stream) = 0;
  /// Adds the sum of x^2, for floating-point x, to the f64 number `sum`. It is then finite if all elements of x are,
  /// and their squares.
  virtual void add_squares(const Tensor& x, const Tensor& sum, Stream stream) = 0;

  // Optimizers (Method gives the formulas). `squares` holds two f64 numbers for each piece if the method needs norms;
  // else it is empty.

  /// The first half of a step that needs norms: advances LAMB's states and sets squares[e,0] to the sum of w^2 over
  /// piece e, squares[e,1] to that of direction^2. The direction is dw for LARS and Adam's with weight decay for LAMB.
  virtual void update_norms(const Optimizer& optimizer, StepRate at, std::span<const WeightPiece> pieces,
                            const Tensor& squares, Stream stream) = 0;
  /// Updates the pieces. `squares` are the sums over whole weights. A weight of norm 0 is not scaled.
  virtual void update(const Optimizer& optimizer, StepRate at, std::span<const WeightPiece> pieces,
                      const Tensor& squares, Stream stream) = 0;
};

/// Returns an uninitialized f64 tensor S N C on x's device: `numbers` numbers for each of `parts` parts of x and for
/// each of `channels` channels (Backend::channel_sums).
Tensor norm_numbers(const Tensor& x, Index numbers, Index parts, Index channels, MemoryClass memory);
/// Returns number s of such a tensor for all parts and channels, as a tensor N C. It shares the buffer.
Tensor norm_number(const Tensor& numbers, Index s);

/// Makes the reference backend, against which the others are tested: plain loops and Eigen, for every floating-point
/// dtype.
std::unique_ptr<Backend> make_reference_backend();
/// Makes the backend that uses oneDNN's convolutions and GEMM, in f32, with `threads` threads. Throws Error if this
/// build lacks oneDNN or if `threads` is less than 1.
std::unique_ptr<Backend> make_onednn_backend(int threads);
/// Returns the version of the oneDNN library that runs, e.g. "2.6.3"; "" if this build lacks oneDNN.
std::string onednn_version();
/// Makes a backend by name: "reference", "onednn", or "auto" (onednn for f32 if this build has it, else reference).
/// Throws Error for another name or for a dtype that the backend cannot compute in.
std::unique_ptr<Backend> make_backend(std::string_view name, DType dtype, int threads);

}  // namespace partita
