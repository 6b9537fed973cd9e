#include "src/model/attention_operators.hpp"
#include "src/model/operators.hpp"
#include "src/train/kernels/kernels.hpp"

namespace partita {

namespace {

class PlaceNormKernel final : public Kernel {
 public:
  explicit PlaceNormKernel(const PlaceNormOperator& op) : norm_{op.epsilon(), op.centered()} {}

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    state<State>(call).x = x[0];
    call.rank.backend.row_norm_forward(norm_, x[0], call.w[0], norm_.centered ? call.w[1] : Tensor(), y,
                                       call.rank.stream);
  }
  /// Both gradients read x and dy. Where dx follows, one pass computes all.
  void backward_filter(const KernelCall& call, const Tensor& dy) const override {
    const RowNormWeights weights{call.dw[0], norm_.centered ? call.dw[1] : Tensor(), call.write};
    if (call.data_follows)
      state<State>(call).weights = weights;
    else
      backward(call, dy, Tensor(), weights);
  }
  bool supports_overwrite() const override { return true; }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    backward(call, dy, dx[0], std::exchange(state<State>(call).weights, {}));
  }

 private:
  struct State final : Saved {
    Tensor x;
    RowNormWeights weights;  // that backward_data computes
  };

  void backward(const KernelCall& call, const Tensor& dy, const Tensor& dx, const RowNormWeights& weights) const {
    call.rank.backend.row_norm_backward(norm_, state<State>(call).x, dy, call.w[0], dx ? call.added : Tensor(), dx,
                                        weights, call.rank.stream);
  }

  RowNorm norm_;
};

/// y[N C L sum@v] = the sum of table[V@v C], or of table[V@v C L], at the tokens of a bag; 0 for tokens of other ranks
class EmbeddingKernel final : public Kernel {
 public:
  EmbeddingKernel(Index vocabulary, double scale) : vocabulary_(vocabulary), scale_(scale) {}

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    state<State>(call).tokens = x[0];
    call.rank.backend.embed_forward(x[0], vocabulary_, call.w[0], scale_, y, call.rank.stream);
  }
  void backward_filter(const KernelCall& call, const Tensor& dy) const override {
    call.rank.backend.embed_backward(state<State>(call).tokens, dy, scale_, call.dw[0], call.write, call.rank.stream);
  }
  bool supports_overwrite() const override { return true; }
  void backward_data(const KernelCall&, const Tensor&, std::span<const Tensor>) const override {
    broken("tokens have no gradient");
  }

 private:
  struct State final : Saved {
    Tensor tokens;
  };
  Index vocabulary_;
  double scale_;
};

/// y[N C] = d[N C] and the products of all pairs of d and v[N C L]
class InteractionKernel final : public Kernel {
 public:
  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    auto& kept = state<State>(call);
    kept.vectors = x[0];
    kept.dense = x[1];
    call.rank.backend.interact_forward(x[0], x[1], y, call.rank.stream);
  }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    const auto& kept = state<State>(call);
    call.rank.backend.interact_backward(kept.vectors, kept.dense, dy, dx[0], dx[1], call.rank.stream);
  }

 private:
  struct State final : Saved {
    Tensor vectors, dense;
  };
};

/// y[N C L] = x[N C H W]: the same numbers in the same order.
class PlacesKernel final : public Kernel {
 public:
  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    copy(call, x[0], y);
  }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    copy(call, dy, dx[0]);
  }

 private:
  static void copy(const KernelCall& call, const Tensor& from, const Tensor& to) {
    if (to.volume() > 0)
      to.device().copy(from.data(), to.data(), static_cast<std::size_t>(to.bytes()), call.rank.stream);
  }
};

/// y[N C L] = x[N C L] + w[C L]. One sample is a row, and the rows of w for its places a bias. The gradient is dy
/// itself (LayerPlan::forwards_gradient).
class PositionsKernel final : public Kernel {
 public:
  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    if (x[0].data() != y.data()) copy_box(x[0], y, y.box(), call.rank.stream);
    call.rank.backend.bias_forward(used(call, call.w[0], y), samples(y), call.rank.stream);
  }
  void backward_filter(const KernelCall& call, const Tensor& dy) const override {
    const Tensor part = used(call, call.dw[0], dy);
    if (call.write == Write::over && part.volume() < call.dw[0].volume()) call.dw[0].zero(call.rank.stream);
    call.rank.backend.bias_backward(samples(dy), part, call.write, call.rank.stream);
  }
  bool supports_overwrite() const override { return true; }
  void backward_data(const KernelCall&, const Tensor&, std::span<const Tensor>) const override {}

 private:
  static Tensor samples(const Tensor& x) {
    const Index count = x.box().extent(0), columns = x.extent('C') * x.extent('L');
    return Tensor::view(x, 0, "NC", Box(Shape{{'N', count}, {'C', columns}}));
  }
  /// The rows of a table for the places of x.
  static Tensor used(const KernelCall& call, const Tensor& table, const Tensor& x) {
    const Interval places = x.box()[2];
    if (places.extent() == table.extent('L')) return table;
    const Index first = call.first_place + places.lo;
    return table.rows({first, first + places.extent()});
  }
};

class GatedKernel final : public Kernel {
 public:
  explicit GatedKernel(const GatedOperator& op) : f_(op.function()) {}

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    state<State>(call).x = x[0];
    call.rank.backend.gate_forward(f_, x[0], y, call.rank.stream);
  }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    call.rank.backend.gate_backward(f_, state<State>(call).x, dy, dx[0], call.rank.stream);
  }

 private:
  struct State final : Saved {
    Tensor x;
  };
  Activation f_;
};

class RotaryKernel final : public Kernel {
 public:
  RotaryKernel(const RotaryOperator& op, const HeadGroups& heads)
      : rotation_{heads.in_group + 2, heads.in_group + 1, heads.dim, op.base()}, back_(rotation_) {
    back_.back = true;
  }

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    call.rank.backend.rotate(rotation_, x[0].shifted(2, call.first_place), y.shifted(2, call.first_place),
                             call.rank.stream);
  }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    call.rank.backend.rotate(back_, dy, dx[0], call.rank.stream);
  }

 private:
  Rotation rotation_, back_;
};

template <class Op>
const Op& operator_of(const LayerPlan& layer) {
  return static_cast<const Op&>(*layer.op);
}

}  // namespace

std::unique_ptr<Kernel> make_place_norm_kernel(const LayerPlan& layer, int) {
  return std::make_unique<PlaceNormKernel>(operator_of<PlaceNormOperator>(layer));
}
std::unique_ptr<Kernel> make_embedding_kernel(const LayerPlan& layer, int) {
  return std::make_unique<EmbeddingKernel>(operator_of<EmbeddingOperator>(layer).vocabulary(), 1);
}
std::unique_ptr<Kernel> make_tables_kernel(const LayerPlan& layer, int) {
  const Tables& tables = operator_of<TablesOperator>(layer).tables();
  return std::make_unique<EmbeddingKernel>(tables.rows,
                                           tables.mean ? 1 / static_cast<double>(layer->input_shapes[0]['C']) : 1);
}
std::unique_ptr<Kernel> make_interaction_kernel(const LayerPlan&, int) { return std::make_unique<InteractionKernel>(); }
std::unique_ptr<Kernel> make_places_kernel(const LayerPlan&, int) { return std::make_unique<PlacesKernel>(); }
std::unique_ptr<Kernel> make_positions_kernel(const LayerPlan&, int) { return std::make_unique<PositionsKernel>(); }
std::unique_ptr<Kernel> make_gated_kernel(const LayerPlan& layer, int) {
  return std::make_unique<GatedKernel>(operator_of<GatedOperator>(layer));
}
std::unique_ptr<Kernel> make_rotary_kernel(const LayerPlan& layer, int) {
  const auto& op = operator_of<RotaryOperator>(layer);
  return std::make_unique<RotaryKernel>(op, op.heads(layer->input_shapes[0]));
}

}  // namespace partita
