#include "src/model/operators.hpp"
#include "src/train/kernels/kernels.hpp"

#include <numeric>

namespace partita {

namespace {

/// What all losses share: each rank computes a part of the sum, and all ranks get the mean. The loss of a step is the
/// mean over its microbatches, weighted by their samples. Gradients are therefore scaled with the microbatch's share.
/// Where some elements count for less, the mean is over all elements nonetheless. The mean of their weights, of which
/// only the whole step knows, divides loss and gradients at its end (Executor).
class LossKernel : public Kernel {
 public:
  explicit LossKernel(const LayerPlan& layer)
      : axes_(layer->at.x[0].sharding()),
        target_(layer.op->target(layer->input_shapes[0])),
        count_(static_cast<double>(target_.shape.volume())) {}

 protected:
  struct State : Saved {
    Tensor x;
  };

  /// loss = sum over ranks of their parts
  void sum_over_ranks(const KernelCall& call) const {
    call.label("loss");
    if (axes_ != 0)
      call.grid.along(axes_)
          .all_reduce(call.result.data(), target_.results(), DType::f64, ReduceOp::sum, call.rank.stream)
          .wait(call.rank.stream);
  }

  AxisSet axes_;
  Target target_;
  double count_;
};

/// loss = sum over ranks of the cross-entropies of their positions / number of all positions. Where ranks hold some of
/// the channels, they exchange the largest entry of each row, and its sums.
class CrossEntropyKernel final : public LossKernel {
 public:
  CrossEntropyKernel(const LayerPlan& layer, int rank)
      : LossKernel(layer), op_(static_cast<const CrossEntropyOperator&>(*layer.op)) {
    const Layout& x = layer->at.x[0];
    classes_ = x.shape()['C'];
    channels_ = x.sharding('C');
    first_ = x.grid().group(rank, channels_).front() == rank;
  }

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& /*y*/) const override {
    auto& saved = state<Rows>(call);
    auto& backend = call.rank.backend;
    const Stream stream = call.rank.stream;
    const std::vector<double>& weights = op_.labels().weights;
    const Index rows = call.target.volume(), numbers = op_.row_numbers() * rows;
    const Tensor held =
        x[0].beside(DType::f64, "F", Box(Shape{{'F', numbers + std::ssize(weights)}}), MemoryClass::activations);
    saved.x = x[0];
    saved.numbers = part_of(held, {0, numbers});
    saved.labels = {call.target, classes_, op_.labels().ignored, op_.labels().smoothing};
    saved.labels.sum_of_weights = static_cast<double>(classes_);
    if (!weights.empty()) {
      saved.labels.weights = part_of(held, {numbers, held.volume()});
      saved.labels.sum_of_weights = std::accumulate(weights.begin(), weights.end(), 0.0);
      backend.write_numbers(weights, saved.labels.weights, stream);
    }
    backend.cross_entropy_maxima(x[0], saved.labels, saved.numbers, stream);
    over_channels(call, "largest scores", saved.numbers, {0, rows}, ReduceOp::max);
    backend.cross_entropy_sums(x[0], saved.labels, saved.numbers, stream);
    over_channels(call, "sums of scores", saved.numbers, {rows, numbers}, ReduceOp::sum);
    if (first_) backend.cross_entropy_loss(saved.labels, saved.numbers, count_, call.result, stream);
    sum_over_ranks(call);
  }

  void backward_data(const KernelCall& call, const Tensor& /*dy*/, std::span<const Tensor> dx) const override {
    const auto& saved = state<Rows>(call);
    call.rank.backend.cross_entropy_backward(saved.x, saved.labels, saved.numbers, call.share / count_, dx[0],
                                             call.rank.stream);
  }

 private:
  struct Rows final : State {
    Tensor numbers;  // of each row
    Labels labels;
  };

  static Tensor part_of(const Tensor& numbers, Interval part) {
    return Tensor::view(numbers, part.lo, "F", Box(Shape{{'F', part.extent()}}));
  }

  void over_channels(const KernelCall& call, const char* role, const Tensor& numbers, Interval part,
                     ReduceOp op) const {
    if (channels_ == 0 || part.extent() == 0) return;
    call.label(role);
    const Tensor some = part_of(numbers, part);
    call.grid.along(channels_)
        .all_reduce(some.data(), some.volume(), DType::f64, op, call.rank.stream)
        .wait(call.rank.stream);
  }

  const CrossEntropyOperator& op_;
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
    classes_ = x.shape()['C'];
    sums_ = static_cast<double>(x.shape()['N'] * classes_);
  }

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& /*y*/) const override {
    auto& saved = state<Sums>(call);
    saved.x = x[0];
    saved.sums = norm_numbers(x[0], 2, x[0].extent('N'), x[0].extent('C'), MemoryClass::activations);
    call.rank.backend.overlap_forward(x[0], labels_of(call), saved.sums, call.result, call.rank.stream);
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
    call.rank.backend.overlap_backward(saved.x, labels_of(call), saved.sums, dx[0], call.rank.stream);
  }

 private:
  Labels labels_of(const KernelCall& call) const { return {call.target, classes_, target_.ignored}; }

  struct Sums final : State {
    Tensor sums;  // of overlaps, then the derivatives of the loss by them
  };
  AxisSet space_ = 0;
  Index classes_ = 1;
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
