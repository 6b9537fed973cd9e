#pragma once

#include "partita/backend/backend.hpp"
#include "partita/base/error.hpp"
#include "src/backend/gpu/functors/launcher.hpp"

#include <cstddef>
#include <span>
#include <string_view>

namespace partita {

/// The first element, on the tensor's device.
template <class T>
T* device_data(const Tensor& tensor) {
  return reinterpret_cast<T*>(tensor.data());
}

/// Returns how many rows can have `bytes` bytes each of a launcher's scratch memory, at least one. `who` needs them.
inline Index rows_in(std::span<const std::byte> scratch, std::size_t bytes, std::string_view who) {
  if (scratch.size() < bytes) fail("{} need scratch memory of {} bytes or more", who, bytes);
  return static_cast<Index>(scratch.size() / bytes);
}

struct RowChunk;

/// A backend whose kernels are functors (launcher.hpp). Each family of kernels has a header of its own in this folder,
/// which defines the members that it names here. Convolutions and products are plain loops: a backend with a library
/// for them overrides these.
template <class Launcher>
class FunctorBackend : public Backend {
 public:
  explicit FunctorBackend(Launcher launcher = {}) : launch_(launcher) {}
  std::string_view name() const override { return "functors"; }
  void check(DType dtype) const override {
    if (dtype == DType::i32) fail("backend '{}' computes in f64, f32, bf16 and f16, not in i32", name());
  }

  // convolution.hpp
  void conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Tensor& y, Stream stream) override;
  void conv_backward_data(std::span<const Window> windows, const Tensor& dy, const Tensor& w, const Tensor& dx,
                          Stream stream) override;
  void conv_backward_filter(std::span<const Window> windows, const Tensor& x, const Tensor& dy, const Tensor& dw,
                            Write write, Stream stream) override;
  void gemm(DType dtype, bool transpose_a, bool transpose_b, Index m, Index n, Index k, double alpha, const void* a,
            Index lda, const void* b, Index ldb, double beta, void* c, Index ldc, Stream stream) override;

  // pooling.hpp
  void pool_forward(const Pooling& pooling, const Tensor& x, const Tensor& y, const Tensor& picked, const Box& part,
                    Stream stream) override;
  void pool_backward(const Pooling& pooling, const Tensor& dy, const Tensor& picked, const Tensor& dx, const Box& part,
                     Stream stream) override;

  // normalization.hpp
  void channel_sums(const Tensor& x, Index groups, const Tensor& sums, Stream stream) override;
  void channel_gradient_sums(const Tensor& x, const MaskedGradient& dy, const Tensor& statistics, const Tensor& sums,
                             Stream stream) override;
  void group_channels(const Tensor& sums, const Tensor& scale, const Tensor& grouped, Stream stream) override;
  void norm_weight_gradients(const NormWeightGradients& to, Stream stream) override;
  void norm_moments(const Tensor& x, const Tensor& sums, Index own, Index count, const Tensor& moments,
                    Stream stream) override;
  void norm_statistics(const Tensor& moments, Index count, double epsilon, const RunningStatistics& running,
                       const Tensor& statistics, Stream stream) override;
  void channel_statistics(const Tensor& x, double epsilon, const RunningStatistics& running, const Tensor& statistics,
                          Stream stream) override;
  void given_statistics(const Tensor& mean, const Tensor& variance, double epsilon, const Tensor& statistics,
                        Stream stream) override;
  void norm_forward(const Tensor& x, const Tensor& statistics, const Tensor& scale, const Tensor& shift, bool relu,
                    const Tensor& y, Stream stream) override;
  void norm_backward(const Tensor& x, const MaskedGradient& dy, const Tensor& statistics, const Tensor& sums,
                     bool scaled, const Tensor& scale, Index count, const Tensor& dx,
                     const NormWeightGradients& weights, Stream stream) override;

  // resampling.hpp
  void spatial_sum(const Tensor& x, double scale, const Tensor& y, Stream stream) override;
  void spatial_spread(const Tensor& dy, double scale, const Tensor& dx, Stream stream) override;
  void resample_forward(std::span<const Resampling> dims, const Tensor& x, const Tensor& y, Stream stream) override;
  void resample_backward(std::span<const Resampling> dims, const Tensor& dy, const Tensor& dx, Stream stream) override;
  void space_to_depth(std::span<const Index> block, const Tensor& x, const Tensor& y, Stream stream) override;
  void depth_to_space(std::span<const Index> block, const Tensor& dy, const Tensor& dx, Stream stream) override;

  // attention.hpp
  void attention_forward(const HeadShape& shape, const Heads& q, const Heads& k, const Heads& v, const Tensor& y,
                         const Tensor& lse, Write write, Stream stream) override;
  void attention_merge(const Tensor& more_y, const Tensor& more_lse, const Tensor& y, const Tensor& lse,
                       Stream stream) override;
  void attention_backward(const HeadShape& shape, const Heads& q, const Heads& k, const Heads& v, const Tensor& y,
                          const Tensor& dy, const Tensor& lse, const Heads& dq, const Heads& dk, const Heads& dv,
                          Write write, Stream stream) override;

  // sequences.hpp
  void row_norm_forward(const RowNorm& norm, const Tensor& x, const Tensor& scale, const Tensor& shift, const Tensor& y,
                        Stream stream) override;
  void row_norm_backward(const RowNorm& norm, const Tensor& x, const Tensor& dy, const Tensor& scale,
                         const Tensor& added, const Tensor& dx, const RowNormWeights& weights, Stream stream) override;
  void embed_forward(const Tensor& tokens, Index vocabulary, const Tensor& table, double scale, const Tensor& y,
                     Stream stream) override;
  void embed_backward(const Tensor& tokens, const Tensor& dy, double scale, const Tensor& dtable, Write write,
                      Stream stream) override;
  void softmax_heads(Index heads, bool causal, const Tensor& segments, const Tensor& x, Stream stream) override;
  void softmax_heads_backward(Index heads, double scale, const Tensor& y, const Tensor& dropped, const Tensor& dx,
                              Stream stream) override;
  void interact_forward(const Tensor& vectors, const Tensor& dense, const Tensor& y, Stream stream) override;
  void interact_backward(const Tensor& vectors, const Tensor& dense, const Tensor& dy, const Tensor& dvectors,
                         const Tensor& ddense, Stream stream) override;
  void gate_forward(const Activation& f, const Tensor& x, const Tensor& y, Stream stream) override;
  void gate_backward(const Activation& f, const Tensor& x, const Tensor& dy, const Tensor& dx, Stream stream) override;
  void rotate(const Rotation& rotation, const Tensor& x, const Tensor& y, Stream stream) override;

  // experts.hpp
  void route(const Routing& routing, const Tensor& scores, const Tensor& routes, const Tensor& gates,
             Stream stream) override;
  void dispatch_forward(const Routing& routing, const Tensor& routes, const Tensor& x, const Tensor& y,
                        Stream stream) override;
  void dispatch_backward(const Routing& routing, const Tensor& routes, const Tensor& dy, const Tensor& dx,
                         Stream stream) override;
  void combine_forward(const Routing& routing, const Tensor& routes, const Tensor& gates, const Tensor& x,
                       const Tensor& y, Stream stream) override;
  void combine_backward(const Routing& routing, const Tensor& routes, const Tensor& gates, const Tensor& scores,
                        const Tensor& x, const Tensor& dy, double balance, const Tensor& dx, const Tensor& dscores,
                        Stream stream) override;

  // elementwise.hpp
  void bias_forward(const Tensor& bias, const Tensor& y, Stream stream) override;
  void bias_backward(const Tensor& dy, const Tensor& db, Write write, Stream stream) override;
  void sum(const Tensor& a, const Tensor& b, bool relu, const Tensor& y, Stream stream) override;
  void activation_forward(const Activation& f, const Tensor& x, const Tensor& y, Stream stream) override;
  void activation_backward(const Activation& f, const Tensor& kept, const Tensor& dy, const Tensor& dx,
                           Stream stream) override;
  void dropout(double rate, const Random& random, const Tensor& step, Index first, const Shape& whole, const Tensor& x,
               const Tensor& added, const Tensor& y, Stream stream) override;
  void axpby(double a, const Tensor& x, double b, const Tensor& y, Stream stream) override;
  void add_squares(const Tensor& x, const Tensor& sum, Stream stream) override;
  void write_numbers(std::span<const double> values, const Tensor& x, Stream stream) override;

  // losses.hpp
  void cross_entropy_maxima(const Tensor& x, const Labels& labels, const Tensor& numbers, Stream stream) override;
  void cross_entropy_sums(const Tensor& x, const Labels& labels, const Tensor& numbers, Stream stream) override;
  void cross_entropy_loss(const Labels& labels, const Tensor& numbers, double count, const Tensor& result,
                          Stream stream) override;
  void cross_entropy_backward(const Tensor& x, const Labels& labels, const Tensor& numbers, double scale,
                              const Tensor& dx, Stream stream) override;
  void overlap_forward(const Tensor& x, const Labels& labels, const Tensor& sums, const Tensor& result,
                       Stream stream) override;
  void overlap_loss(const Tensor& sums, double count, double scale, const Tensor& result, Stream stream) override;
  void overlap_backward(const Tensor& x, const Labels& labels, const Tensor& derivatives, const Tensor& dx,
                        Stream stream) override;
  void difference_forward(bool absolute, const Tensor& x, const Tensor& target, double count, const Tensor& result,
                          Stream stream) override;
  void difference_backward(bool absolute, const Tensor& x, const Tensor& target, double scale, const Tensor& dx,
                           Stream stream) override;

  // updates.hpp
  void update_norms(const Optimizer& optimizer, StepRate at, std::span<const WeightPiece> pieces, const Tensor& squares,
                    Stream stream) override;
  void update(const Optimizer& optimizer, StepRate at, std::span<const WeightPiece> pieces, const Tensor& squares,
              Stream stream) override;

 private:
  // losses.hpp
  template <class Visit>
  void each_chunk(Index samples, Index rows, const Tensor& x, const Labels& labels, Stream stream, Visit&& visit) const;
  void prepare(const RowChunk& chunk, const Tensor& x, const Labels& labels, Stream stream) const;

  // sequences.hpp
  template <class Visit>
  void each_row_chunk(const RowNorm& norm, const Tensor& x, Stream stream, Visit&& visit) const;

  Launcher launch_;
};

}  // namespace partita
