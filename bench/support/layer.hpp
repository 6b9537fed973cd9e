#pragma once

// One convolution with what a strategy moves around it, run by itself: what a layer of a training step costs.

#include "partita/backend/measure.hpp"
#include "partita/comm/counting.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "partita/train/kernels/kernel.hpp"
#include "bench/support/bare_conv.hpp"

#include <memory>
#include <string>

namespace partita::bench {

/// A convolution of `batch` samples on the ranks of `comm`, its input and output laid out as `layout` says.
class Layer {
 public:
  Layer(const ConvShape& shape, Index batch, const std::string& grid, const std::string& layout,
        const std::shared_ptr<Communicator>& comm);
  /// What y needs: x redistributed, halos, the convolution, y redistributed.
  void forward();
  /// What dx and this rank's part of dw need; not the sum of dw.
  void backward();
  /// Bytes of dw that are summed over ranks; 0 where no rank holds a part of another's sum.
  Index summed_bytes() const;
  /// dw = its sum over the ranks that hold parts of it.
  void sum_dw();
  /// How it runs, e.g. "stationary-y"; "" without channels cut.
  const std::string& algorithm() const { return layer()->at.algorithm; }

 private:
  const LayerPlan& layer() const { return plan_.layers[position]; }
  KernelCall call();
  Tensor random(const Layout& layout, std::uint32_t stream) const;

  static constexpr std::size_t position = 2;  // behind the input and a layer with weights, so that it has a dx
  Plan plan_;
  std::shared_ptr<TrafficCounter> counter_ = std::make_shared<TrafficCounter>();
  std::shared_ptr<Allocator> allocator_ = std::make_shared<Allocator>();
  std::unique_ptr<ProcessGrid> grid_;
  std::unique_ptr<Backend> backend_;
  RankContext rank_;
  std::unique_ptr<Kernel> kernel_;
  std::unique_ptr<Saved> saved_;
  Tensor x_, dy_, target_;
  std::vector<Tensor> w_, dw_;
};

}  // namespace partita::bench
