#include "partita/matmul/product.hpp"
#include "src/model/operators.hpp"
#include "src/train/kernels/kernels.hpp"

namespace partita {

namespace {

/// Three products, each with its own algorithm, which includes its communication.
///
///     y[n f] = f(sum over c of x[n c] w[f c] + bias[f])    dz = f'(...) dy
///     dx[n c] = sum over f of dz[n f] w[f c]               dw[f c] = sum over n of dz[n f] x[n c]
class LinearKernel final : public Kernel {
 public:
  LinearKernel(const LayerPlan& layer, int rank)
      : activation_(static_cast<const LinearOperator&>(*layer.op).linear().activation),
        adds_bias_(layer->weights.size() > 1 && is_first(layer->at.y, rank)),
        next_activation_(layer.next_activation) {
    for (const auto& product : layer->at.products) products_.emplace_back(product, rank);
  }

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    auto& kept = state<State>(call);
    kept.x = x[0];
    const bool in_place = !activation_ || activation_->differentiates_value();
    const Tensor z = in_place ? y : y.like(y.box(), Fill::none);
    // If several ranks hold parts of one sum, the first of them adds the bias.
    Epilogue epilogue(adds_bias_ ? call.w[1] : Tensor(), call.fused ? next_activation_ : std::nullopt);
    if (in_place && activation_) epilogue.activation = activation_;
    call.label(roles[of_y]);
    products_[of_y].run(call.rank.backend, call.grid, x[0], call.w[0], z, epilogue, call.rank.stream);
    if (!activation_) return;
    if (!in_place) call.rank.backend.activation_forward(*activation_, z, y, call.rank.stream);
    kept.of_derivative = z;
  }
  void start_backward(const KernelCall& call, const Tensor& dy) const override {
    auto& kept = state<State>(call);
    kept.dz = dy;
    if (!activation_) return;
    kept.dz = dy.like(dy.box(), MemoryClass::activations, Fill::none);
    call.rank.backend.activation_backward(*activation_, kept.of_derivative, dy, kept.dz, call.rank.stream);
  }
  void backward_filter(const KernelCall& call, const Tensor& /*dy*/) const override {
    const auto& kept = state<State>(call);
    multiply(call, of_dw, kept.dz, kept.x, call.dw[0], call.write);
    if (call.dw.size() > 1) call.rank.backend.bias_backward(kept.dz, call.dw[1], call.write, call.rank.stream);
  }
  bool supports_overwrite() const override { return true; }
  void backward_data(const KernelCall& call, const Tensor&, std::span<const Tensor> dx) const override {
    multiply(call, of_dx, state<State>(call).dz, call.w[0], dx[0], Write::over);
  }

 private:
  enum Which : std::uint8_t { of_y, of_dx, of_dw };
  struct State final : Saved {
    Tensor x, of_derivative, dz;
  };

  static constexpr std::array roles{"product y", "product dx", "product dw"};

  void multiply(const KernelCall& call, Which which, const Tensor& a, const Tensor& b, const Tensor& c,
                Write write) const {
    call.label(roles[which]);
    products_[which].run(call.rank.backend, call.grid, a, b, c, write, call.rank.stream);
  }

  std::optional<Activation> activation_;
  bool adds_bias_;
  std::optional<Activation> next_activation_;
  std::vector<Product> products_;
};

/// One product of this rank's rows: channels are the fastest in memory, so that the places of all samples are rows.
/// With groups of channels, one for each group.
///
///     y[r f] = sum over c of x[r c] w[f c] + bias[f]        r stands for all of N L
///     dx[r c] = sum over f of dy[r f] w[f c]                dw[f c] = sum over r of dy[r f] x[r c]
class PlaceLinearKernel final : public Kernel {
 public:
  PlaceLinearKernel(const LayerPlan& layer, int rank)
      : PlaceLinearKernel(layer, rank, layer->at.w[0].owned(rank),
                          static_cast<const PlaceLinearOperator&>(*layer.op).groups()) {}

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    state<State>(call).x = x[0];
    if (y.box().empty()) return;
    const Index rows = y.volume() / (groups_ * outputs_);
    // If several ranks hold parts of one sum, the first of them adds the bias.
    const Epilogue epilogue(adds_bias_ ? call.w[1] : Tensor(), call.fused ? next_activation_ : std::nullopt);
    if (groups_ == 1 && inputs_ > 0)
      return call.rank.backend.fused_gemm(false, true, rows, outputs_, inputs_, x[0].data(), inputs_, call.w[0].data(),
                                          inputs_, epilogue, y, call.rank.stream);
    multiply(call, {.transpose_b = true, .m = rows, .n = outputs_, .k = inputs_}, of_x(x[0]), weights(call.w[0]),
             of_y(y), Write::over);
    call.rank.backend.apply(epilogue, y, call.rank.stream);
  }
  void backward_filter(const KernelCall& call, const Tensor& dy) const override {
    const Index rows = groups_ * outputs_ > 0 ? dy.volume() / (groups_ * outputs_) : 0;
    multiply(call, {.transpose_a = true, .m = outputs_, .n = inputs_, .k = rows}, of_y(dy), of_x(state<State>(call).x),
             weights(call.dw[0]), call.write);
    if (call.dw.size() > 1) call.rank.backend.bias_backward(dy, call.dw[1], call.write, call.rank.stream);
  }
  bool supports_overwrite() const override { return true; }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    const Index rows = groups_ * inputs_ > 0 ? dx[0].volume() / (groups_ * inputs_) : 0;
    multiply(call, {.m = rows, .n = inputs_, .k = outputs_}, of_y(dy), weights(call.w[0]), of_x(dx[0]), Write::over);
  }

 private:
  struct State final : Saved {
    Tensor x;
  };
  /// The extents of the product of each group.
  struct Extents {
    bool transpose_a = false, transpose_b = false;
    Index m = 0, n = 0, k = 0;
  };
  /// A tensor of matrices, one for each group. In elements, they are `step` apart, and their rows `row`.
  struct Matrices {
    const Tensor& of;
    Index step, row;
    std::byte* group(Index g) const { return of.data() + g * step * size_of(of.dtype()); }
  };

  PlaceLinearKernel(const LayerPlan& layer, int rank, const Box& w, Index groups)
      : groups_(groups == 1 ? 1 : w.extent(0) / (layer->weights[0].shape['F'] / groups)),
        inputs_(w.extent(1)),
        outputs_(groups_ > 0 ? w.extent(0) / groups_ : 0),
        adds_bias_(layer->weights.size() > 1 && is_first(layer->at.y, rank)),
        next_activation_(layer.next_activation) {}

  Matrices of_x(const Tensor& x) const { return {x, inputs_, groups_ * inputs_}; }
  Matrices of_y(const Tensor& y) const { return {y, outputs_, groups_ * outputs_}; }
  Matrices weights(const Tensor& w) const { return {w, outputs_ * inputs_, inputs_}; }

  /// c[m n] = op(a) op(b), or c += op(a) op(b), for each group. The sum over k = 0 is 0.
  void multiply(const KernelCall& call, const Extents& product, const Matrices& a, const Matrices& b, const Matrices& c,
                Write write) const {
    const auto& [transpose_a, transpose_b, m, n, k] = product;
    if (c.of.box().empty()) return;
    if (k == 0) {
      if (write == Write::over) c.of.zero(call.rank.stream);
      return;
    }
    for (Index g = 0; g < groups_; ++g)
      call.rank.backend.gemm(c.of.dtype(), transpose_a, transpose_b, m, n, k, 1, a.group(g), a.row, b.group(g), b.row,
                             write == Write::add ? 1 : 0, c.group(g), c.row, call.rank.stream);
  }

  Index groups_;            // that are here
  Index inputs_, outputs_;  // channels of a group
  bool adds_bias_;
  std::optional<Activation> next_activation_;
};

}  // namespace

std::unique_ptr<Kernel> make_place_linear_kernel(const LayerPlan& layer, int rank) {
  return std::make_unique<PlaceLinearKernel>(layer, rank);
}

std::unique_ptr<Kernel> make_linear_kernel(const LayerPlan& layer, int rank) {
  return std::make_unique<LinearKernel>(layer, rank);
}

}  // namespace partita
