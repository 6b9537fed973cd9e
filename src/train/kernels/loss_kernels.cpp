#include "src/model/operators.hpp"
#include "src/train/kernels/kernels.hpp"

namespace partita {

namespace {

/// What all losses share: each rank computes a part of the sum, and all ranks get the mean. The loss of a step is the
/// mean over its microbatches, weighted by their samples. Gradients are therefore scaled with the microbatch's share.
class LossKernel : public Kernel {
 public:
  explicit LossKernel(const LayerPlan& layer)
      : axes_(layer->at.x[0].sharding()),
        count_(static_cast<double>(layer.op->target(layer->input_shapes[0]).shape.volume())) {}

 protected:
  struct State : Saved {
    Tensor x;
  };

  /// loss = sum over ranks of their parts
  void sum_over_ranks(const KernelCall& call) const {
    call.label("loss");
    if (axes_ != 0)
      call.grid.along(axes_)
          .all_reduce(call.result.data(), 2, DType::f64, ReduceOp::sum, call.rank.stream)
          .wait(call.rank.stream);
  }

  AxisSet axes_;
  double count_;
};

/// loss = sum over ranks of the cross-entropies of their positions / number of all positions. Where ranks hold some of
/// the channels, they exchange the largest entry of each row, and its sums.
class CrossEntropyKernel final : public LossKernel {
 public:
  CrossEntropyKernel(const LayerPlan& layer, int rank) : LossKernel(layer) {
    const Layout& x = layer->at.x[0];
    classes_ = x.shape()['C'];
    channels_ = x.sharding('C');
    first_ = x.grid().group(rank, channels_).front() == rank;
  }

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& /*y*/) const override {
    auto& saved = state<Rows>(call);
    const Index rows = call.target.volume();
    saved.x = x[0];
    saved.numbers = x[0].beside(DType::f64, "F", Box(Shape{{'F', 4 * rows}}), MemoryClass::activations);
    auto& backend = call.rank.backend;
    const Stream stream = call.rank.stream;
    backend.cross_entropy_maxima(x[0], saved.numbers, stream);
    over_channels(call, "largest scores", saved.numbers, {0, rows}, ReduceOp::max);
    backend.cross_entropy_sums(x[0], call.target, classes_, saved.numbers, stream);
    over_channels(call, "sums of scores", saved.numbers, {rows, 4 * rows}, ReduceOp::sum);
    if (first_) backend.cross_entropy_loss(saved.numbers, count_, call.result, stream);
    sum_over_ranks(call);
  }

  void backward_data(const KernelCall& call, const Tensor& /*dy*/, std::span<const Tensor> dx) const override {
    const auto& saved = state<Rows>(call);
    call.rank.backend.cross_entropy_backward(saved.x, call.target, saved.numbers, call.share / count_, dx[0],
                                             call.rank.stream);
  }

 private:
  struct Rows final : State {
    Tensor numbers;  // four for each row
  };

  void over_channels(const KernelCall& call, const char* role, const Tensor& numbers, Interval part,
                     ReduceOp op) const {
    if (channels_ == 0 || part.extent() == 0) return;
    call.label(role);
    const Tensor some = Tensor::view(numbers, part.lo, "F", Box(Shape{{'F', part.extent()}}));
    call.grid.along(channels_)
        .all_reduce(some.data(), some.volume(), DType::f64, op, call.rank.stream)
        .wait(call.rank.stream);
  }

  Index classes_ = 1;
  AxisSet channels_ = 0;  // axes that shard the channels
  bool first_ = true;     // of the ranks that hold channels of the same rows
};

/// loss = sum over samples and channels of (1 - (2 common + 1)/(both + 1)) / (samples * channels)
class DiceKernel final : public LossKernel {
 public:
  DiceKernel(const LayerPlan& layer, int rank) : LossKernel(layer) {
    const Layout& x = layer->at.x[0];
    space_ = x.sharding() & ~x.sharding('N');
    first_ = x.grid().group(rank, space_).front() == rank;
    sums_ = static_cast<double>(x.shape()['N'] * x.shape()['C']);
  }

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& /*y*/) const override {
    auto& saved = state<Sums>(call);
    saved.x = x[0];
    saved.sums = norm_numbers(x[0], 2, x[0].extent('N'), x[0].extent('C'), MemoryClass::activations);
    call.rank.backend.overlap_forward(x[0], call.target, saved.sums, call.result, call.rank.stream);
    call.label("overlaps");
    if (space_ != 0 && saved.sums.volume() > 0)
      call.grid.along(space_)
          .all_reduce(saved.sums.data(), saved.sums.volume(), DType::f64, ReduceOp::sum, call.rank.stream)
          .wait(call.rank.stream);
    call.rank.backend.overlap_loss(saved.sums, sums_, call.share, first_ ? call.result : Tensor(), call.rank.stream);
    sum_over_ranks(call);
  }

  void backward_data(const KernelCall& call, const Tensor& /*dy*/, std::span<const Tensor> dx) const override {
    const auto& saved = state<Sums>(call);
    call.rank.backend.overlap_backward(saved.x, call.target, saved.sums, dx[0], call.rank.stream);
  }

 private:
  struct Sums final : State {
    Tensor sums;  // of overlaps, then the derivatives of the loss by them
  };
  AxisSet space_ = 0;
  bool first_ = true;  // of the ranks that hold positions of the same samples
  double sums_ = 1;
};

/// loss = sum over ranks of their elements' differences / all elements
class DifferenceKernel final : public LossKernel {
 public:
  explicit DifferenceKernel(const LayerPlan& layer)
      : LossKernel(layer), absolute_(static_cast<const DifferenceOperator&>(*layer.op).absolute()) {}

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& /*y*/) const override {
    state<State>(call).x = x[0];
    call.rank.backend.difference_forward(absolute_, x[0], call.target, count_, call.result, call.rank.stream);
    sum_over_ranks(call);
  }

  void backward_data(const KernelCall& call, const Tensor& /*dy*/, std::span<const Tensor> dx) const override {
    call.rank.backend.difference_backward(absolute_, state<State>(call).x, call.target, call.share / count_, dx[0],
                                          call.rank.stream);
  }

 private:
  bool absolute_;
};

}  // namespace

std::unique_ptr<Kernel> make_cross_entropy_kernel(const LayerPlan& layer, int rank) {
  return std::make_unique<CrossEntropyKernel>(layer, rank);
}
std::unique_ptr<Kernel> make_dice_kernel(const LayerPlan& layer, int rank) {
  return std::make_unique<DiceKernel>(layer, rank);
}
std::unique_ptr<Kernel> make_difference_kernel(const LayerPlan& layer, int) {
  return std::make_unique<DifferenceKernel>(layer);
}

}  // namespace partita
