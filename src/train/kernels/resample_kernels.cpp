#include "partita/distconv/halo_exchange.hpp"
#include "src/model/operators.hpp"
#include "src/train/kernels/kernels.hpp"

namespace partita {

namespace {

/// y = f(x with halo), dx = f'(dy): the gradients of the halo are sent back to its owners, which add them.
class HaloKernel : public Kernel {
 public:
  HaloKernel(const LayerPlan& layer, int rank) : halo_(*layer->at.x_halo, rank) {}

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    call.label("halo x");
    HaloExchange halo(halo_, x[0], call.rank);
    apply(call.rank, halo.finish(), y);
  }

  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    call.label("halo dx");
    HaloReturn halo(halo_, dx[0], call.rank.stream);
    apply_adjoint(call.rank, dy, halo.extended());
    halo.start(call.rank);
    halo.finish();
  }

 protected:
  virtual void apply(const RankContext& rank, const Tensor& x, const Tensor& y) const = 0;
  /// dx is zero before the call.
  virtual void apply_adjoint(const RankContext& rank, const Tensor& dy, const Tensor& dx) const = 0;

 private:
  HaloPart halo_;
};

class ResampleKernel final : public HaloKernel {
 public:
  ResampleKernel(const LayerPlan& layer, int rank)
      : HaloKernel(layer, rank),
        dims_(static_cast<const ResampleOperator&>(*layer.op).resamplings(layer->input_shapes[0])) {}

 private:
  void apply(const RankContext& rank, const Tensor& x, const Tensor& y) const override {
    rank.backend.resample_forward(dims_, x, y, rank.stream);
  }
  void apply_adjoint(const RankContext& rank, const Tensor& dy, const Tensor& dx) const override {
    rank.backend.resample_backward(dims_, dy, dx, rank.stream);
  }
  std::vector<Resampling> dims_;
};

class SpaceToDepthKernel final : public HaloKernel {
 public:
  SpaceToDepthKernel(const LayerPlan& layer, int rank) : HaloKernel(layer, rank) {
    for (const auto& window : static_cast<const SpaceToDepthOperator&>(*layer.op).windows(layer->input_shapes[0]))
      block_.push_back(window.kernel);
  }

 private:
  void apply(const RankContext& rank, const Tensor& x, const Tensor& y) const override {
    rank.backend.space_to_depth(block_, x, y, rank.stream);
  }
  void apply_adjoint(const RankContext& rank, const Tensor& dy, const Tensor& dx) const override {
    rank.backend.depth_to_space(block_, dy, dx, rank.stream);
  }
  std::vector<Index> block_;
};

}  // namespace

std::unique_ptr<Kernel> make_resample_kernel(const LayerPlan& layer, int rank) {
  return std::make_unique<ResampleKernel>(layer, rank);
}
std::unique_ptr<Kernel> make_space_to_depth_kernel(const LayerPlan& layer, int rank) {
  return std::make_unique<SpaceToDepthKernel>(layer, rank);
}

}  // namespace partita
