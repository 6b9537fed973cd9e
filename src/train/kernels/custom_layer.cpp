#include "partita/train/kernels/custom_layer.hpp"

#include "src/train/kernels/kernels.hpp"

#include "partita/base/error.hpp"

namespace partita {

namespace {

struct SavedTensors final : Saved {
  explicit SavedTensors(std::vector<Tensor> kept) : tensors(std::move(kept)) {}
  std::vector<Tensor> tensors;
};

/// Runs a layer that is its own kernel.
class CustomKernel final : public Kernel {
 public:
  explicit CustomKernel(std::shared_ptr<const CustomLayer> layer) : layer_(std::move(layer)) {}

  std::vector<ConvProblem> problems(bool training, bool ahead) const override {
    return layer_->problems(training, ahead);
  }
  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    layer_->forward(call, x, y);
  }
  void start_backward(const KernelCall& call, const Tensor& dy) const override { layer_->start_backward(call, dy); }
  void backward_filter(const KernelCall& call, const Tensor& dy) const override { layer_->backward_filter(call, dy); }
  bool supports_overwrite() const override { return layer_->supports_overwrite(); }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    layer_->backward_data(call, dy, dx);
  }

 private:
  std::shared_ptr<const CustomLayer> layer_;
};

}  // namespace

void CustomLayer::save(const KernelCall& call, std::vector<Tensor> tensors) {
  call.saved = std::make_unique<SavedTensors>(std::move(tensors));
}

const Tensor& CustomLayer::saved(const KernelCall& call, std::size_t i) {
  const auto* kept = dynamic_cast<const SavedTensors*>(call.saved.get());
  if (kept == nullptr || i >= kept->tensors.size())
    fail("layer '{}': its forward saved no tensor {}", call.layer.name, i);
  return kept->tensors[i];
}

std::unique_ptr<Kernel> make_custom_kernel(const LayerPlan& layer) {
  auto custom = std::dynamic_pointer_cast<const CustomLayer>(layer.op);
  return custom ? std::make_unique<CustomKernel>(std::move(custom)) : nullptr;
}

}  // namespace partita
