#pragma once

// One convolution with the communication that a strategy needs for it, run on its own: the cost of a layer in a
// training step.

#include "bench/support/bare_conv.hpp"
#include "partita/comm/counting.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "partita/train/kernels/kernel.hpp"
#include "src/backend/measure.hpp"

#include <memory>
#include <string>

namespace partita::bench {

/// A convolution of `batch` samples on the ranks of `comm`. `layout` is the layout of its input and output.
class Layer {
 public:
  Layer(const ConvShape& shape, Index batch, const std::string& grid, const std::string& layout,
        const std::shared_ptr<Communicator>& comm);
  /// Computes y: redistributes x, exchanges halos, convolves, and redistributes y.
  void forward();
  /// Computes dx and this rank's part of dw, without the sum of dw over ranks.
  void backward();
  /// Bytes of dw that are summed over ranks; 0 if dw needs no sum.
  Index summed_bytes() const;
  /// Sums dw over the ranks that hold parts of the sum.
  void sum_dw();
  /// The algorithm, e.g. "stationary-y"; "" if channels are not sharded.
  std::string algorithm() const { return layer()->at.algorithm ? std::string(name(*layer()->at.algorithm)) : ""; }

 private:
  const LayerPlan& layer() const { return plan_.layers[position]; }
  KernelCall call();
  Tensor random(const Layout& layout, std::uint32_t stream) const;

  static constexpr std::size_t position = 2;  // after the input and a layer with weights, so that the layer has a dx
  Plan plan_;
  std::shared_ptr<TrafficCounter> counter_ = std::make_shared<TrafficCounter>();
  std::shared_ptr<Allocator> allocator_ = std::make_shared<Allocator>();
  std::unique_ptr<ProcessGrid> grid_;
  std::unique_ptr<Backend> backend_;
  RankContext rank_;
  std::unique_ptr<Kernel> kernel_;
  std::unique_ptr<Saved> saved_;
  Tensor x_, dy_, target_, result_, step_;
  std::vector<Tensor> w_, dw_;
};

}  // namespace partita::bench
