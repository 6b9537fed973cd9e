#include "partita/distconv/conv.hpp"
#include "partita/distconv/conv_transpose.hpp"
#include "partita/distconv/pool.hpp"
#include "src/model/operators.hpp"
#include "src/train/kernels/kernels.hpp"

namespace partita {

namespace {

/// Convolution and transposed convolution, which differ in the direction of their windows. If several ranks hold parts
/// of one sum, the first of them adds the bias.
///
///     y[N@a C@o H@b sum@i] = conv(x[N@a C@i H@b], w) + bias
template <class Spatial, class Kind>
class ConvKernel : public Kernel {
 public:
  ConvKernel(const LayerPlan& layer, int rank)
      : conv_(static_cast<const Kind&>(*layer.op).windows(layer->input_shapes[0]), *layer->at.x_halo,
              *layer->at.dy_halo, rank),
        x_(layer->at.x[0].owned(rank)),
        w_(layer->at.w[0].owned(rank)),
        y_(layer->at.y.owned(rank)),
        adds_bias_(layer->weights.size() > 1 && is_first(layer->at.y, rank)),
        needs_dx_(layer->needs_dx[0]),
        next_activation_(layer.next_activation) {}

  std::vector<ConvProblem> problems(bool training, bool ahead, bool fused) const override {
    const auto all = all_problems(ahead, fused);  // forward, backward-data, backward-filter
    const std::array runs{true, training && needs_dx_, training};
    std::vector<ConvProblem> problems;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (runs[i] && !all[i].empty()) problems.push_back(all[i]);
    return problems;
  }

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    call.label("halo x");
    const Epilogue epilogue{adds_bias_ ? call.w[1] : Tensor(), call.fused ? next_activation_ : std::nullopt};
    conv_.forward(call.rank, x[0], call.w[0], epilogue, y, state<State>(call).extended);
  }

  void start_backward(const KernelCall& call, const Tensor& dy) const override {
    if (!needs_dx_) return;
    call.label("halo dy");
    state<State>(call).dy = conv_.start_backward(call.rank, dy);
  }

  void backward_filter(const KernelCall& call, const Tensor& dy) const override {
    conv_.backward_filter(call.rank, state<State>(call).extended, dy, call.dw[0], call.write);
    if (call.dw.size() > 1) call.rank.backend.bias_backward(dy, call.dw[1], call.write, call.rank.stream);
  }
  bool supports_overwrite() const override { return true; }

  void backward_data(const KernelCall& call, const Tensor& /*dy*/, std::span<const Tensor> dx) const override {
    conv_.backward_data(call.rank, state<State>(call).dy, call.w[0], dx[0]);
  }

 private:
  struct State final : Saved {
    Tensor extended;
    HaloExchange dy;
  };

  std::vector<ConvProblem> all_problems(bool ahead, bool fused) const {
    if constexpr (std::is_same_v<Spatial, SpatialConvTranspose>)
      return conv_.problems(x_, w_, y_);
    else {
      auto all = conv_.problems(x_, w_, y_, adds_bias_, ahead);
      if (fused) all.front().apply(next_activation_);
      return all;
    }
  }

  Spatial conv_;
  Box x_, w_, y_;
  bool adds_bias_, needs_dx_;
  std::optional<Activation> next_activation_;
};

/// y[N@a C@b H@c] = pool(x[N@a C@b H@c])
class PoolKernel final : public Kernel {
 public:
  PoolKernel(const LayerPlan& layer, int rank) : pool_(make(layer, rank)) {}

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    auto& picked = state<State>(call).picked;
    if (static_cast<const PoolOperator&>(*call.layer.op).maximum()) picked = y.like(DType::i32);
    call.label("halo x");
    pool_.forward(call.rank, x[0], y, picked);
  }

  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    call.label("halo dx");
    pool_.backward(call.rank, dy, state<State>(call).picked, dx[0]);
  }

 private:
  struct State final : Saved {
    Tensor picked;
  };

  static SpatialPool make(const LayerPlan& layer, int rank) {
    const auto& op = static_cast<const PoolOperator&>(*layer.op);
    const auto kind = op.maximum() ? PoolKind::max : PoolKind::average;
    return {kind, op.windows(layer->input_shapes[0]), op.pool().count_padding, *layer->at.x_halo, rank};
  }

  SpatialPool pool_;
};

}  // namespace

std::unique_ptr<Kernel> make_conv_kernel(const LayerPlan& layer, int rank) {
  return std::make_unique<ConvKernel<SpatialConv, ConvOperator>>(layer, rank);
}
std::unique_ptr<Kernel> make_conv_transpose_kernel(const LayerPlan& layer, int rank) {
  return std::make_unique<ConvKernel<SpatialConvTranspose, ConvTransposeOperator>>(layer, rank);
}
std::unique_ptr<Kernel> make_pool_kernel(const LayerPlan& layer, int rank) {
  return std::make_unique<PoolKernel>(layer, rank);
}

}  // namespace partita
