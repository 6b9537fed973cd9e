#pragma once

#include "partita/backend/conv_problem.hpp"
#include "partita/base/activation.hpp"
#include "partita/base/resampling.hpp"
#include "partita/base/tensor.hpp"
#include "partita/base/window.hpp"

#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace partita {

/// What becomes of what lies where a result goes.
enum class Write : std::uint8_t {
  over,  ///< it does not count: result = value
  add,   ///< result += value
};

enum class PoolKind : std::uint8_t { max, average };

/// A pooling operator: windows over the spatial dimensions, and how an average counts padding.
struct Pooling {
  PoolKind kind = PoolKind::max;
  std::span<const Window> windows;
  bool count_padding =
      false;  ///< average: divide by the whole window, padding included, or by the inputs that it covers
};

/// Sums over N and the spatial dimensions, one pair a channel, in double: they travel between ranks and decide
/// variances.
struct ChannelSums {
  std::span<double> first, second;
};

/// Local kernels. Tensors carry global boxes, and every operator is defined by them: it computes what its output's box
/// asks for, and a tensor is zero (maximum pooling: minus infinity) outside its box. So padding, halos, interior and
/// boundary are all the same call, and empty boxes are allowed everywhere. Windows slide over the dimensions behind N
/// and C. All tensors of one call share a dtype; f64 sums in double, all others in float. Results depend on values and
/// boxes only: replicas agree bit for bit.
class Backend {
 public:
  virtual ~Backend() = default;
  /// "reference" or "onednn".
  virtual std::string_view name() const = 0;
  /// Throws Error if the backend cannot compute in `dtype`, saying which can.
  virtual void check(DType dtype) const = 0;

  /// The ways in which this backend can compute a convolution, its own guess first; empty where there is no choice.
  virtual std::vector<std::string_view> algorithms(const ConvProblem& /*problem*/) const { return {}; }
  /// Which of them it takes from now on. Throws Error for a name that is not among them.
  virtual void choose(const ConvProblem& problem, std::string_view algorithm);
  /// choose() keeps all ways that were chosen for one problem until it is called for another, so that they can be tried in turns; this
  /// releases them, and the kernels' room, but for the one chosen last.
  virtual void forget_tried() {}

  // Convolution: x[N C ...], w[F C ...], bias[F] or none, y[N C ...] with C = F of w.
  // The channels of y are those of w's F, the n-th for the n-th. Where w has fewer channels than x, these are groups of as
  // many, each with its share of the filters, in order.

  /// y = conv(x, w) + bias
  virtual void conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Tensor& bias,
                            const Tensor& y, Stream stream) = 0;
  /// dx = conv'(dy, w): dx of every input in its box from the outputs in dy's box
  virtual void conv_backward_data(std::span<const Window> windows, const Tensor& dy, const Tensor& w, const Tensor& dx,
                                  Stream stream) = 0;
  /// dw = conv'(x, dy), or dw += it
  virtual void conv_backward_filter(std::span<const Window> windows, const Tensor& x, const Tensor& dy,
                                    const Tensor& dw, Write write, Stream stream) = 0;
  /// y += bias[c]; bias has one dimension
  virtual void bias_forward(const Tensor& bias, const Tensor& y, Stream stream) = 0;
  /// db[c] = sum of dy over all but C, or db += it; db has one dimension
  virtual void bias_backward(const Tensor& dy, const Tensor& db, Write write, Stream stream) = 0;

  // Pooling. `picked` (i32, y's box) keeps which input of the window was the maximum, for the backward; averages leave
  // it.

  /// y = pool(x); x holds all inputs (inside the global tensor) that y's windows cover
  virtual void pool_forward(const Pooling& pooling, const Tensor& x, const Tensor& y, const Tensor& picked,
                            Stream stream) = 0;
  /// dx += pool'(dy), for x's box of pool_forward
  virtual void pool_backward(const Pooling& pooling, const Tensor& dy, const Tensor& picked, const Tensor& dx,
                             Stream stream) = 0;

  // Batch normalisation, in parts, since its sums cross ranks. Vectors of doubles have one entry a local channel.

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
  /// Its adjoint: dx[n,c,...] = scale * dy[n,c]
  virtual void spatial_spread(const Tensor& dy, double scale, const Tensor& dx, Stream stream) = 0;

  /// y = resample(x), one a spatial dimension; x holds all inputs that y is made of
  virtual void resample_forward(std::span<const Resampling> dims, const Tensor& x, const Tensor& y, Stream stream) = 0;
  /// Its adjoint: dx += resample'(dy)
  virtual void resample_backward(std::span<const Resampling> dims, const Tensor& dy, const Tensor& dx,
                                 Stream stream) = 0;
  /// y = blocks of places of x as channels: position i, j of its block and channel c of x are channel (c i j) of y; x holds
  /// all blocks of y, `block` extents one a spatial dimension
  virtual void space_to_depth(std::span<const Index> block, const Tensor& x, const Tensor& y, Stream stream) = 0;
  /// Its inverse: the places of dx in the blocks of dy
  virtual void depth_to_space(std::span<const Index> block, const Tensor& dy, const Tensor& dx, Stream stream) = 0;

  // Element by element.

  /// y = f(x)
  virtual void activation_forward(const Activation& f, const Tensor& x, const Tensor& y, Stream stream) = 0;
  /// dx = f'(x) * dy; `kept` is y if f.differentiates_value(), else x
  virtual void activation_backward(const Activation& f, const Tensor& kept, const Tensor& dy, const Tensor& dx,
                                   Stream stream) = 0;

  // Matrix product, row-major: C[m,n] = alpha * op(A) op(B) + beta * C, op transposing where asked.
  // lda, ldb and ldc are elements between rows.
  virtual void gemm(DType dtype, bool transpose_a, bool transpose_b, Index m, Index n, Index k, double alpha,
                    const void* a, Index lda, const void* b, Index ldb, double beta, void* c, Index ldc,
                    Stream stream) = 0;

  // Losses of labels: a place is a row of channels of x[N C ...], in the order of x's memory; labels[i] belongs to row i.

  /// Adds to loss the sum over rows of -log softmax(x)[label], and to correct the rows whose largest entry is the
  /// label.
  virtual void cross_entropy_forward(const Tensor& x, std::span<const std::int32_t> labels, double& loss,
                                     double& correct, Stream stream) = 0;
  /// dx = scale * (softmax(x) - onehot(label))
  virtual void cross_entropy_backward(const Tensor& x, std::span<const std::int32_t> labels, double scale,
                                      const Tensor& dx, Stream stream) = 0;
  /// For each sample and channel, sample by sample, with p = softmax(x) and g = onehot(label): common = sum of p g, both =
  /// sum of p + g. Adds to correct as cross_entropy_forward does.
  virtual void overlap_forward(const Tensor& x, std::span<const std::int32_t> labels, std::span<double> common,
                               std::span<double> both, double& correct, Stream stream) = 0;
  /// dx = the gradient of sum over samples and channels of of_common * common + of_both * both.
  virtual void overlap_backward(const Tensor& x, std::span<const std::int32_t> labels,
                                std::span<const double> of_common, std::span<const double> of_both, const Tensor& dx,
                                Stream stream) = 0;

  // Losses of values; the target is like x.

  /// The sum of (x - target)^2, or of |x - target|.
  virtual double difference_forward(bool absolute, const Tensor& x, const Tensor& target, Stream stream) = 0;
  /// dx = scale * its gradient; 0 where x is the target.
  virtual void difference_backward(bool absolute, const Tensor& x, const Tensor& target, double scale, const Tensor& dx,
                                   Stream stream) = 0;
};

/// The oracle: named loops and Eigen, every dtype.
std::unique_ptr<Backend> make_reference_backend();
/// oneDNN's convolutions and GEMM in f32, `threads` threads. Throws Error if this build lacks oneDNN.
std::unique_ptr<Backend> make_onednn_backend(int threads);
/// "auto" (onednn for f32 where it was built, else reference), "reference" or "onednn"; throws Error for another name
/// or a dtype that it cannot compute.
std::unique_ptr<Backend> make_backend(std::string_view name, DType dtype, int threads);

}  // namespace partita
