#include "src/model/operators.hpp"
#include "src/train/kernels/kernels.hpp"

namespace partita {

namespace {

/// Does nothing: the executor puts the batch in place.
class InputKernel final : public Kernel {
 public:
  void forward(const KernelCall&, std::span<const Tensor>, const Tensor&) const override {}
  void backward_data(const KernelCall&, const Tensor&, std::span<const Tensor>) const override {}
};

/// y = f(x)
class ActivationKernel final : public Kernel {
 public:
  explicit ActivationKernel(const LayerPlan& layer) : f_(*layer.op->activation()) {}

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    if (!call.fused) call.rank.backend.activation_forward(f_, x[0], y, call.rank.stream);
    state<State>(call).kept = f_.differentiates_value() ? y : x[0];
  }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    call.rank.backend.activation_backward(f_, state<State>(call).kept, dy, dx[0], call.rank.stream);
  }

 private:
  struct State final : Saved {
    Tensor kept;
  };
  Activation f_;
};

/// y[N@a C@b sum@c] = sum over the rank's positions of x[N@a C@b H@c] / number of positions
class GlobalAveragePoolKernel final : public Kernel {
 public:
  explicit GlobalAveragePoolKernel(const LayerPlan& layer)
      : scale_(static_cast<double>(layer->shape.volume()) / static_cast<double>(layer->input_shapes[0].volume())) {}

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    call.rank.backend.spatial_sum(x[0], scale_, y, call.rank.stream);
  }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    call.rank.backend.spatial_spread(dy, scale_, dx[0], call.rank.stream);
  }

 private:
  double scale_;
};

/// y = x without the elements that a dropout leaves out, plus `added` if that is given.
void drop(const KernelCall& call, const LayerPlan& dropout, const Tensor& x, const Tensor& added, const Tensor& y) {
  const Shape& whole = dropout->shape;
  const Index sample = whole.volume() / std::max<Index>(whole['N'], 1);
  call.rank.backend.dropout(dropout.op->dropout_rate(), call.dropout_numbers(dropout), call.step,
                            call.first_sample * sample, whole, x, added, y, call.rank.stream);
}

/// y = x1 + x2, or ReLU of it, or the sum with a dropout of one of them. Its gradient is dy itself
/// (LayerPlan::forwards_gradient).
class AddKernel final : public Kernel {
 public:
  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    if (call.dropped != nullptr && call.training)
      drop(call, *call.dropped, x[call.layer.drops], x[1 - call.layer.drops], y);
    else
      call.rank.backend.sum(x[0], x[1], call.fused, y, call.rank.stream);
  }
  void backward_data(const KernelCall&, const Tensor&, std::span<const Tensor>) const override {}
};

/// y[N@a C H@b] = (x1[N@a C1 H@b], x2[N@a C2 H@b], ...)
class ConcatenateKernel final : public Kernel {
 public:
  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    Index first = y.box()[1].lo;
    for (const auto& each : x) {
      const Tensor part = each.shifted(1, first - each.box()[1].lo);
      copy_box(part, y, part.box(), call.rank.stream);
      first += each.extent('C');
    }
  }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    Index first = dy.box()[1].lo;
    for (const auto& each : dx) {
      const Tensor part = each.shifted(1, first - each.box()[1].lo);
      copy_box(dy, part, part.box(), call.rank.stream);
      first += each.extent('C');
    }
  }
};

/// y = x * mask / (1 - rate). The backward pass draws the same mask again from the same random numbers.
class DropoutKernel final : public Kernel {
 public:
  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    if (!call.fused) apply(call, x[0], y);
  }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    apply(call, dy, dx[0]);
  }

 private:
  static void apply(const KernelCall& call, const Tensor& from, const Tensor& to) {
    if (call.training && call.layer.op->dropout_rate() > 0)
      drop(call, call.layer, from, {}, to);
    else if (from.data() != to.data())
      copy_box(from, to, to.box(), call.rank.stream);
  }
};

}  // namespace

std::unique_ptr<Kernel> make_input_kernel(const LayerPlan&, int) { return std::make_unique<InputKernel>(); }
std::unique_ptr<Kernel> make_activation_kernel(const LayerPlan& layer, int) {
  return std::make_unique<ActivationKernel>(layer);
}
std::unique_ptr<Kernel> make_global_average_pool_kernel(const LayerPlan& layer, int) {
  return std::make_unique<GlobalAveragePoolKernel>(layer);
}
std::unique_ptr<Kernel> make_add_kernel(const LayerPlan&, int) { return std::make_unique<AddKernel>(); }
std::unique_ptr<Kernel> make_concatenate_kernel(const LayerPlan&, int) { return std::make_unique<ConcatenateKernel>(); }
std::unique_ptr<Kernel> make_dropout_kernel(const LayerPlan&, int) { return std::make_unique<DropoutKernel>(); }
}  // namespace partita
