#include "src/train/run/inspector.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace partita {

namespace {

/// True if no element has all bits of `exponent` set, as NaN and infinities have. Compilers vectorize this loop.
template <class T>
bool none_has(const Tensor& tensor, T exponent) {
  const auto* bits = reinterpret_cast<const T*>(tensor.data());
  const Index count = tensor.volume();  // called in the loop, it would keep the loop from being vectorized
  T any = 0;
  for (Index i = 0; i < count; ++i) any |= static_cast<T>((bits[i] & exponent) == exponent);
  return any == 0;
}

}  // namespace

bool is_finite(const Tensor& tensor) {
  if (tensor.volume() == 0) return true;
  switch (tensor.dtype()) {
    case DType::f64: return none_has<std::uint64_t>(tensor, 0x7FF0000000000000);
    case DType::f32: return none_has<std::uint32_t>(tensor, 0x7F800000);
    case DType::bf16: return none_has<std::uint16_t>(tensor, 0x7F80);
    case DType::f16: return none_has<std::uint16_t>(tensor, 0x7C00);
    case DType::i32: return true;
  }
  broken("unknown data type");
}

void Inspector::found(double order, int layer, const char* what) {
  if (any_ && order_ <= order) return;
  any_ = true;
  order_ = order;
  text_ = fmt::format("{} layer '{}'", what, plan_.layers[static_cast<std::size_t>(layer)].name);
}

bool Inspector::finite_weights(int layer) const {
  const auto& weights = parameters_.layer(static_cast<std::size_t>(layer)).master;
  return std::all_of(weights.begin(), weights.end(), [](const DistTensor& w) { return is_finite(w.local); });
}

void Inspector::look(const StepOp& op, const Microbatch& m) {
  const auto layers = static_cast<double>(plan_.layers.size());
  const bool is_loss = op.layer + 1 == static_cast<int>(plan_.layers.size());
  const double back = 2 * layers - op.layer;
  switch (op.kind) {
    case StepOp::Kind::forward:
      if (op.layer == 0 && !is_finite(m.batch.images)) return found(0, 0, "in the samples, the output of");
      if (is_loss && !is_finite(m.batch.target)) return found(op.layer, op.layer, "in the targets of");
      if (is_loss ? std::isfinite(m.result.loss) : is_finite(m.work.y)) return;
      return found(op.layer, op.layer, finite_weights(op.layer) ? "in the output of" : "in the weights of");
    case StepOp::Kind::backward_data:
      if (!std::all_of(m.work.dx.begin(), m.work.dx.end(), is_finite)) found(back, op.layer, "in the dx of");
      return;
    case StepOp::Kind::backward_filter: {
      const auto& dw = parameters_.layer(static_cast<std::size_t>(op.layer)).gradient;
      if (!std::all_of(dw.begin(), dw.end(), is_finite)) found(back - 0.5, op.layer, "in the weight gradient of");
      return;
    }
    default: return;
  }
}

void Inspector::look_at_sum(int layer, const Tensor& sum) {
  if (!is_finite(sum))
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
