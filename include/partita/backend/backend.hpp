#pragma once

#include "partita/backend/conv_problem.hpp"
#include "partita/base/activation.hpp"
#include "partita/base/resampling.hpp"
#include "partita/base/tensor.hpp"
#include "partita/base/window.hpp"

#include <memory>
#include <span>
#include <string>
#include <string_view>
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

/// Sums over N and the spatial dimensions: two values for each channel. They are double because they are summed across
/// ranks and because variances are computed from them.
struct ChannelSums {
  std::span<double> first, second;
};

/// The local kernels of one rank. A tensor carries its box in global coordinates, and the boxes define every operator:
/// it computes exactly the elements in its output's box. Outside its box a tensor counts as zero (for maximum pooling:
/// minus infinity). Therefore padding, halos, interior and boundary all use the same call. Empty boxes are allowed
/// everywhere. Windows slide over the dimensions after N and C. All tensors of one call share a dtype. Sums are formed
/// in double for f64 and in float for all other dtypes. Results depend only on values and boxes, so replicas agree bit
/// for bit.
class Backend {
 public:
  virtual ~Backend() = default;
  /// Returns "reference" or "onednn".
  virtual std::string_view name() const = 0;
  /// Returns all that decides which of its algorithms is the fastest on one processor: the name and, for a backend that
  /// uses a library, the library's version and the instructions that it may use.
  virtual std::string describe() const { return std::string(name()); }
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

  // Pooling. `picked` (i32, with y's box) stores which input of each window was the maximum, for the backward pass.
  // Average pooling does not use it.

  /// y = pool(x). x must hold all inputs inside the global tensor that y's windows cover.
  virtual void pool_forward(const Pooling& pooling, const Tensor& x, const Tensor& y, const Tensor& picked,
                            Stream stream) = 0;
  /// dx += pool'(dy), where dx has the box that x had in pool_forward
  virtual void pool_backward(const Pooling& pooling, const Tensor& dy, const Tensor& picked, const Tensor& dx,
                             Stream stream) = 0;

  // Batch normalization. It is split into steps, since its sums are taken across ranks. A vector of doubles has one
  // entry per local channel.

  /// first[c] = sum x, second[c] = sum x^2
  virtual void channel_sums(const Tensor& x, ChannelSums sums, Stream stream) = 0;
  /// first[c] = sum dy, second[c] = sum dy * (x - mean[c]) * inverse_deviation[c]
  virtual void channel_gradient_sums(const Tensor& x, const Tensor& dy, std::span<const double> mean,
                                     std::span<const double> inverse_deviation, ChannelSums sums, Stream stream) = 0;
  /// y = scale[c] * x + shift[c]
  virtual void channel_affine(const Tensor& x, std::span<const double> scale, std::span<const double> shift,
                              const Tensor& y, Stream stream) = 0;
  /// dx = a[c] * dy + b[c] * x + c[c]
  virtual void channel_affine_backward(const Tensor& x, const Tensor& dy, std::span<const double> a,
                                       std::span<const double> b, std::span<const double> c, const Tensor& dx,
                                       Stream stream) = 0;

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

  // Element-wise functions.

  /// y = f(x)
  virtual void activation_forward(const Activation& f, const Tensor& x, const Tensor& y, Stream stream) = 0;
  /// dx = f'(x) * dy; `kept` is y if f.differentiates_value(), else x
  virtual void activation_backward(const Activation& f, const Tensor& kept, const Tensor& dy, const Tensor& dx,
                                   Stream stream) = 0;

  // Matrix product, row-major: C[m,n] = alpha * op(A) op(B) + beta * C, where op transposes if the flag says so.
  // lda, ldb and ldc are the distances between rows, in elements.
  virtual void gemm(DType dtype, bool transpose_a, bool transpose_b, Index m, Index n, Index k, double alpha,
                    const void* a, Index lda, const void* b, Index ldb, double beta, void* c, Index ldc,
                    Stream stream) = 0;

  // Losses against labels. x[N C ...] is read as rows of channels, in the order of x's memory; labels[i] belongs to
  // row i.

  /// Adds to `loss` the sum over rows of -log softmax(x)[label]. Adds to `correct` the number of rows whose largest
  /// entry is the label.
  virtual void cross_entropy_forward(const Tensor& x, std::span<const std::int32_t> labels, double& loss,
                                     double& correct, Stream stream) = 0;
  /// dx = scale * (softmax(x) - onehot(label))
  virtual void cross_entropy_backward(const Tensor& x, std::span<const std::int32_t> labels, double scale,
                                      const Tensor& dx, Stream stream) = 0;
  /// The sums of the Dice loss. With p = softmax(x) and g = onehot(label), computes for each sample and channel:
  /// common = sum of p * g and both = sum of p + g. The channels of one sample are adjacent. Adds to `correct` as
  /// cross_entropy_forward does.
  virtual void overlap_forward(const Tensor& x, std::span<const std::int32_t> labels, std::span<double> common,
                               std::span<double> both, double& correct, Stream stream) = 0;
  /// dx = the gradient of the sum over samples and channels of of_common * common + of_both * both
  virtual void overlap_backward(const Tensor& x, std::span<const std::int32_t> labels,
                                std::span<const double> of_common, std::span<const double> of_both, const Tensor& dx,
                                Stream stream) = 0;

  // Losses against values. The target has the same dtype, dimensions and extents as x.

  /// Returns the sum of (x - target)^2, or of |x - target| if `absolute`.
  virtual double difference_forward(bool absolute, const Tensor& x, const Tensor& target, Stream stream) = 0;
  /// dx = scale * gradient of difference_forward; 0 where x equals the target.
  virtual void difference_backward(bool absolute, const Tensor& x, const Tensor& target, double scale, const Tensor& dx,
                                   Stream stream) = 0;
};

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
