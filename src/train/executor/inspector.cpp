#include "src/train/executor/inspector.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace partita {

bool is_finite(Backend& backend, const Tensor& tensor, Stream stream) {
  if (!tensor || tensor.volume() == 0 || tensor.dtype() == DType::i32) return true;
  const Tensor squares = tensor.beside(DType::f64, "F", Box(Shape{{'F', 1}}), MemoryClass::workspace);
  squares.zero(stream);
  backend.add_squares(tensor, squares, stream);
  if (std::isfinite(read(squares, stream)[0])) return true;
  // The squares may be too large where the numbers are not: 0 times a number is 0 or NaN.
  const Tensor zeros = tensor.like(tensor.box(), MemoryClass::workspace, Fill::none);
  backend.axpby(0, tensor, 0, zeros, stream);
  squares.zero(stream);
  backend.add_squares(zeros, squares, stream);
  return std::isfinite(read(squares, stream)[0]);
}

bool Inspector::finite(std::span<const Tensor> tensors) const {
  return std::all_of(tensors.begin(), tensors.end(), [this](const Tensor& each) { return finite(each); });
}

void Inspector::found(double order, int layer, const char* what) {
  if (any_ && order_ <= order) return;
  any_ = true;
  order_ = order;
  text_ = fmt::format("{} layer '{}'", what, plan_.layers[layer].name);
}

bool Inspector::finite_weights(int layer) const {
  const auto& weights = parameters_.layer(static_cast<std::size_t>(layer)).master;
  return std::all_of(weights.begin(), weights.end(), [this](const DistTensor& w) { return finite(w.local); });
}

void Inspector::look(const StepOp& op, const Microbatch& m) {
  const auto layers = static_cast<double>(plan_.layers.size());
  const bool is_loss = op.layer + 1 == static_cast<int>(plan_.layers.size());
  const double back = 2 * layers - op.layer;
  switch (op.kind) {
    case StepOp::Kind::forward:
      if (const int input = plan_.layers[op.layer].input; input >= 0 && !finite(m.batch.images[input]))
        return found(op.layer, op.layer, "in the samples, the output of");
      if (is_loss && !finite(m.batch.target)) return found(op.layer, op.layer, "in the targets of");
      if (is_loss ? std::isfinite(read(m.result, stream_)[0]) : finite(m.work.y)) return;
      return found(op.layer, op.layer, finite_weights(op.layer) ? "in the output of" : "in the weights of");
    case StepOp::Kind::backward_data:
      if (!finite(m.work.dx)) found(back, op.layer, "in the dx of");
      return;
    case StepOp::Kind::add_gradients:
    case StepOp::Kind::backward_filter: {
      if (op.kind == StepOp::Kind::backward_filter && plan_.layers[op.layer].gathers_weights()) return;
      const auto& dw = parameters_.layer(static_cast<std::size_t>(op.layer)).gradient;
      if (!finite(dw)) found(back - 0.5, op.layer, "in the weight gradient of");
      return;
    }
    default: return;
  }
}

void Inspector::look_at_sum(int layer, const Tensor& sum) {
  if (!finite(sum))
    found(3 * static_cast<double>(plan_.layers.size()) - layer, layer,
          "in the weight gradients, summed over ranks, of");
}

std::string Inspector::first(Communicator& world) const {
  constexpr double never = -std::numeric_limits<double>::max();
  const double mine = any_ ? -order_ : never;
  double best = mine;
  world.all_reduce(&best, 1, DType::f64, ReduceOp::max, {}).wait();
  if (best == never) return "";
  return agree(world, mine == best ? fmt::format("{} on rank {}", text_, world.rank()) : "");
}

}  // namespace partita
