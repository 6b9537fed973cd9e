#include "partita/train/kernels/custom_layer.hpp"

#include "partita/base/error.hpp"
#include "src/train/kernels/kernels.hpp"

#include <optional>

namespace partita {

namespace {

/// What a layer of the user's own keeps for one microbatch.
struct CustomState final : Saved {
  std::vector<Tensor> tensors;
  HaloExchange dy;
  std::unique_ptr<Saved> further;
};

CustomState& state_of(const KernelCall& call) {
  if (!call.saved) call.saved = std::make_unique<CustomState>();
  auto* state = dynamic_cast<CustomState*>(call.saved.get());
  if (state == nullptr)
    fail(
        "layer '{}': it sets call.saved itself, so save(), state() and halos have no place; keep its data with state()",
        call.layer.name);
  return *state;
}

const HaloPart& halo_of(const KernelCall& call, const HaloPart* halo, std::string_view which) {
  if (halo == nullptr)
    fail("layer '{}': its layouts() named no {}, so there is no halo to exchange", call.layer.name, which);
  return *halo;
}

void check_windows(const KernelCall& call, std::span<const Window> windows, const Tensor& x) {
  if (static_cast<int>(windows.size()) + 2 != x.box().dims())
    fail("layer '{}': it gives {} for a tensor with the dimensions {}; give one for each dimension after N and C",
         call.layer.name, counted(static_cast<Index>(windows.size()), "window"), x.names());
}

/// Returns the rank's context. It computes nothing ahead if the layer does not say that this halo overlaps.
RankContext context(const KernelCall& call, bool overlaps) {
  RankContext rank = call.rank;
  rank.overlap = rank.overlap && overlaps;
  return rank;
}

/// Runs a layer that is its own kernel. It adds to the calls what it knows of the layer on this rank.
class CustomKernel final : public Kernel {
 public:
  CustomKernel(std::shared_ptr<const CustomLayer> custom, const LayerPlan& layer, int rank)
      : custom_(std::move(custom)) {
    if (layer->at.x_halo) x_.emplace(*layer->at.x_halo, rank);
    if (layer->at.dy_halo) dy_.emplace(*layer->at.dy_halo, rank);
  }

  std::vector<ConvProblem> problems(bool training, bool ahead, bool fused) const override {
    return custom_->problems(training, ahead, fused);
  }
  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    custom_->forward(with_halos(call), x, y);
  }
  void start_backward(const KernelCall& call, const Tensor& dy) const override {
    custom_->start_backward(with_halos(call), dy);
  }
  void backward_filter(const KernelCall& call, const Tensor& dy) const override {
    custom_->backward_filter(with_halos(call), dy);
  }
  bool supports_overwrite() const override { return custom_->supports_overwrite(); }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    custom_->backward_data(with_halos(call), dy, dx);
  }

 private:
  KernelCall with_halos(const KernelCall& call) const {
    KernelCall mine = call;
    mine.x_halo = x_ ? &*x_ : nullptr;
    mine.dy_halo = dy_ ? &*dy_ : nullptr;
    return mine;
  }

  std::shared_ptr<const CustomLayer> custom_;
  std::optional<HaloPart> x_, dy_;
};

}  // namespace

void CustomLayer::save(const KernelCall& call, std::vector<Tensor> tensors) {
  state_of(call).tensors = std::move(tensors);
}

const Tensor& CustomLayer::saved(const KernelCall& call, std::size_t i) {
  const auto* kept = dynamic_cast<const CustomState*>(call.saved.get());
  if (kept == nullptr || i >= kept->tensors.size())
    fail("layer '{}': its forward saved no tensor {}", call.layer.name, i);
  return kept->tensors[i];
}

const std::unique_ptr<Saved>& CustomLayer::further_state(const KernelCall& call,
                                                         const std::function<std::unique_ptr<Saved>()>& make) {
  auto& further = state_of(call).further;
  if (!further) further = make();
  return further;
}

void CustomLayer::fail_state(const KernelCall& call) {
  fail("layer '{}': it asks for its state with two types", call.layer.name);
}

Tensor CustomLayer::with_halo(const KernelCall& call, std::span<const Window> windows, const Tensor& x, const Tensor& y,
                              const std::function<void(const Tensor& from, const Box& part)>& compute) {
  check_windows(call, windows, x);
  call.label("halo x");
  return compute_with_halo(halo_of(call, call.x_halo, "x_halo"), windows, x, y.box(),
                           context(call, call.layer.op->halo_overlap().x), compute);
}

void CustomLayer::start_backward(const KernelCall& call, const Tensor& dy) const {
  if (call.dy_halo == nullptr || !call.layer.needs_any_dx()) return;
  call.label("halo dy");
  HaloExchange exchange(*call.dy_halo, dy, call.rank);
  if (!context(call, halo_overlap().dy).overlap) exchange.finish();
  state_of(call).dy = std::move(exchange);
}

const Tensor& CustomLayer::dy_with_halo(const KernelCall& call) {
  halo_of(call, call.dy_halo, "dy_halo");
  return state_of(call).dy.finish();
}

void CustomLayer::return_halo(const KernelCall& call, std::span<const Window> windows, const Tensor& dy,
                              const Tensor& dx, const std::function<void(const Box& part, const Tensor& to)>& compute) {
  check_windows(call, windows, dy);
  call.label("halo dx");
  compute_with_halo_return(halo_of(call, call.x_halo, "x_halo"), windows, dy.box(), dx,
                           context(call, call.layer.op->halo_overlap().dx), compute);
}

std::unique_ptr<Kernel> make_custom_kernel(const LayerPlan& layer, int rank) {
  auto custom = std::dynamic_pointer_cast<const CustomLayer>(layer.op);
  return custom ? std::make_unique<CustomKernel>(std::move(custom), layer, rank) : nullptr;
}

}  // namespace partita
