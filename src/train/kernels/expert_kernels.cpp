#include "src/model/expert_operators.hpp"
#include "src/train/kernels/kernels.hpp"

namespace partita {

namespace {

/// Returns the routes of all samples, and their gates unless `gates` is null. They follow from the scores alone, so
/// that each layer that has the scores finds the same ones.
Tensor routes_of(const KernelCall& call, const Routing& routing, const Tensor& scores, Tensor* gates) {
  const Interval samples = scores.box()[0];
  const auto beside = [&](DType dtype, Index numbers) {
    Box box(2);
    box[0] = samples;
    box[1] = {0, numbers};
    return scores.beside(dtype, "NF", box, MemoryClass::activations);
  };
  const Tensor routes = beside(DType::i32, routing.numbers(scores.extent('L')));
  if (gates != nullptr) *gates = beside(DType::f64, scores.extent('L') * routing.chosen);
  call.rank.backend.route(routing, scores, routes, gates != nullptr ? *gates : Tensor(), call.rank.stream);
  return routes;
}

/// y[N@a (E C) S] = the places of x[N@a C L] in the slots of the experts that they choose
class DispatchKernel final : public Kernel {
 public:
  explicit DispatchKernel(const LayerPlan& layer)
      : routing_(static_cast<const DispatchOperator&>(*layer.op).routing(layer->input_shapes[0]['L'])) {}

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    auto& routes = state<State>(call).routes;
    routes = routes_of(call, routing_, x[1], nullptr);
    call.rank.backend.dispatch_forward(routing_, routes, x[0], y, call.rank.stream);
  }
  /// Which slots there are changes in steps with the scores, so that they have no gradient here.
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    call.rank.backend.dispatch_backward(routing_, state<State>(call).routes, dy, dx[0], call.rank.stream);
    dx[1].zero(call.rank.stream);
  }

 private:
  struct State final : Saved {
    Tensor routes;
  };
  Routing routing_;
};

/// y[N@a F L] = the sum over a place's slots of gate * slot, for slots x[N@a (E F) S]
class CombineKernel final : public Kernel {
 public:
  explicit CombineKernel(const LayerPlan& layer)
      : CombineKernel(static_cast<const CombineOperator&>(*layer.op), layer) {}

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    auto& kept = state<State>(call);
    kept.scores = x[0];
    kept.slots = x[1];
    kept.routes = routes_of(call, routing_, x[0], &kept.gates);
    call.rank.backend.combine_forward(routing_, kept.routes, kept.gates, x[1], y, call.rank.stream);
  }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    const auto& kept = state<State>(call);
    call.rank.backend.combine_backward(routing_, kept.routes, kept.gates, kept.scores, kept.slots, dy,
                                       balance_ * call.share, dx[1], dx[0], call.rank.stream);
  }

 private:
  struct State final : Saved {
    Tensor scores, slots, routes, gates;
  };
  CombineKernel(const CombineOperator& op, const LayerPlan& layer)
      : routing_(op.routing(layer->shape['L'])),
        balance_(op.experts().balance / static_cast<double>(layer->shape['N'])) {}

  Routing routing_;
  double balance_;  // of one sample
};

}  // namespace

std::unique_ptr<Kernel> make_dispatch_kernel(const LayerPlan& layer, int) {
  return std::make_unique<DispatchKernel>(layer);
}
std::unique_ptr<Kernel> make_combine_kernel(const LayerPlan& layer, int) {
  return std::make_unique<CombineKernel>(layer);
}

}  // namespace partita
