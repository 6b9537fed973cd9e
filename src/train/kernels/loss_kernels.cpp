#include "partita/model/operators.hpp"
#include "src/train/kernels/kernels.hpp"

#include <array>
#include <limits>

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

  static std::span<const std::int32_t> labels(const KernelCall& call) {
    return {call.target.as<std::int32_t>(), static_cast<std::size_t>(call.target.volume())};
  }

  /// loss = sum over ranks of their parts
  void leave(const KernelCall& call, double loss, double correct) const {
    std::array sums{loss, correct};
    call.label("loss");
    if (axes_ != 0)
      call.grid.along(axes_).all_reduce(sums.data(), 2, DType::f64, ReduceOp::sum, call.rank.stream).wait();
    *call.loss = sums[0];
    *call.correct = sums[1] / count_;
  }

  AxisSet axes_;
  double count_;
};

/// loss = sum over ranks of the cross-entropies of their positions / number of all positions
class CrossEntropyKernel final : public LossKernel {
 public:
  using LossKernel::LossKernel;

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& /*y*/) const override {
    state<State>(call).x = x[0];
    double loss = 0, correct = 0;
    call.rank.backend.cross_entropy_forward(x[0], labels(call), loss, correct, call.rank.stream);
    leave(call, loss / count_, correct);
  }

  void backward_data(const KernelCall& call, const Tensor& /*dy*/, std::span<const Tensor> dx) const override {
    call.rank.backend.cross_entropy_backward(state<State>(call).x, labels(call), call.share / count_, dx[0],
                                             call.rank.stream);
  }
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
    const auto count = static_cast<std::size_t>(x[0].box().extent(0) * x[0].box().extent(1));
    std::vector<double> sums(2 * count);
    const auto common = std::span(sums).first(count), both = std::span(sums).last(count);
    double correct = 0, loss = 0;
    call.rank.backend.overlap_forward(x[0], labels(call), common, both, correct, call.rank.stream);
    call.label("overlaps");
    if (space_ != 0 && count > 0)
      call.grid.along(space_)
          .all_reduce(sums.data(), static_cast<Index>(sums.size()), DType::f64, ReduceOp::sum, call.rank.stream)
          .wait();
    saved.of_common.resize(count);
    saved.of_both.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const double score = (2 * common[i] + 1) / (both[i] + 1);
      loss += (1 - score) / sums_;
      saved.of_common[i] = -2 / (both[i] + 1) / sums_ * call.share;
      saved.of_both[i] = score / (both[i] + 1) / sums_ * call.share;
    }
    leave(call, first_ ? loss : 0, correct);
  }

  void backward_data(const KernelCall& call, const Tensor& /*dy*/, std::span<const Tensor> dx) const override {
    const auto& saved = state<Sums>(call);
    call.rank.backend.overlap_backward(saved.x, labels(call), saved.of_common, saved.of_both, dx[0], call.rank.stream);
  }

 private:
  struct Sums final : State {
    std::vector<double> of_common, of_both;  // derivatives of the loss
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
    leave(call, call.rank.backend.difference_forward(absolute_, x[0], call.target, call.rank.stream) / count_,
          std::numeric_limits<double>::quiet_NaN());
  }

  void backward_data(const KernelCall& call, const Tensor& /*dy*/, std::span<const Tensor> dx) const override {
    call.rank.backend.difference_backward(absolute_, state<State>(call).x, call.target, call.share / count_, dx[0],
                                          call.rank.stream);
  }

 private:
  bool absolute_;
};

}  // namespace

std::unique_ptr<Kernel> make_cross_entropy_kernel(const LayerPlan& layer, int) {
  return std::make_unique<CrossEntropyKernel>(layer);
}
std::unique_ptr<Kernel> make_dice_kernel(const LayerPlan& layer, int rank) {
  return std::make_unique<DiceKernel>(layer, rank);
}
std::unique_ptr<Kernel> make_difference_kernel(const LayerPlan& layer, int) {
  return std::make_unique<DifferenceKernel>(layer);
}

}  // namespace partita
