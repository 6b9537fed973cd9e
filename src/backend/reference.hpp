#pragma once

#include "partita/backend/backend.hpp"

namespace partita {

/// y = bias, for outputs that read no input; zero if there is no bias.
void fill_bias(const Tensor& bias, const Tensor& y);

/// Kernels in plain loops and Eigen. They keep no state. The oneDNN backend overrides those for which it has faster
/// ones.
class ReferenceBackend : public Backend {
 public:
  std::string_view name() const override { return "reference"; }
  void check(DType dtype) const override;

  void conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Tensor& y, Stream stream) override;
  void conv_backward_data(std::span<const Window> windows, const Tensor& dy, const Tensor& w, const Tensor& dx,
                          Stream stream) override;
  void conv_backward_filter(std::span<const Window> windows, const Tensor& x, const Tensor& dy, const Tensor& dw,
                            Write write, Stream stream) override;
  void bias_forward(const Tensor& bias, const Tensor& y, Stream stream) override;
  void bias_backward(const Tensor& dy, const Tensor& db, Write write, Stream stream) override;

  void pool_forward(const Pooling& pooling, const Tensor& x, const Tensor& y, const Tensor& picked,
                    Stream stream) override;
  void pool_backward(const Pooling& pooling, const Tensor& dy, const Tensor& picked, const Tensor& dx,
                     Stream stream) override;

  void channel_sums(const Tensor& x, ChannelSums sums, Stream stream) override;
  void channel_gradient_sums(const Tensor& x, const Tensor& dy, std::span<const double> mean,
                             std::span<const double> inverse_deviation, ChannelSums sums, Stream stream) override;
  void channel_affine(const Tensor& x, std::span<const double> scale, std::span<const double> shift, const Tensor& y,
                      Stream stream) override;
  void channel_affine_backward(const Tensor& x, const Tensor& dy, std::span<const double> a, std::span<const double> b,
                               std::span<const double> c, const Tensor& dx, Stream stream) override;

  void spatial_sum(const Tensor& x, double scale, const Tensor& y, Stream stream) override;
  void spatial_spread(const Tensor& dy, double scale, const Tensor& dx, Stream stream) override;
  void resample_forward(std::span<const Resampling> dims, const Tensor& x, const Tensor& y, Stream stream) override;
  void resample_backward(std::span<const Resampling> dims, const Tensor& dy, const Tensor& dx, Stream stream) override;
  void space_to_depth(std::span<const Index> block, const Tensor& x, const Tensor& y, Stream stream) override;
  void depth_to_space(std::span<const Index> block, const Tensor& dy, const Tensor& dx, Stream stream) override;
  void activation_forward(const Activation& f, const Tensor& x, const Tensor& y, Stream stream) override;
  void activation_backward(const Activation& f, const Tensor& kept, const Tensor& dy, const Tensor& dx,
                           Stream stream) override;

  void gemm(DType dtype, bool transpose_a, bool transpose_b, Index m, Index n, Index k, double alpha, const void* a,
            Index lda, const void* b, Index ldb, double beta, void* c, Index ldc, Stream stream) override;

  void cross_entropy_forward(const Tensor& x, std::span<const std::int32_t> labels, double& loss, double& correct,
                             Stream stream) override;
  void cross_entropy_backward(const Tensor& x, std::span<const std::int32_t> labels, double scale, const Tensor& dx,
                              Stream stream) override;
  void overlap_forward(const Tensor& x, std::span<const std::int32_t> labels, std::span<double> common,
                       std::span<double> both, double& correct, Stream stream) override;
  void overlap_backward(const Tensor& x, std::span<const std::int32_t> labels, std::span<const double> of_common,
                        std::span<const double> of_both, const Tensor& dx, Stream stream) override;
  double difference_forward(bool absolute, const Tensor& x, const Tensor& target, Stream stream) override;
  void difference_backward(bool absolute, const Tensor& x, const Tensor& target, double scale, const Tensor& dx,
                           Stream stream) override;
};

}  // namespace partita
