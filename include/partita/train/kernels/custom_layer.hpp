#pragma once

#include "partita/model/operator.hpp"
#include "partita/train/kernels/kernel.hpp"

#include <vector>

namespace partita {

/// A layer of the user's own, as one class. The functions of Operator say what the layer is and how it lies on a grid;
/// those of Kernel compute one rank's part of it. Model::layer() takes a pointer to it:
///
///     class Sine final : public CustomLayer { ... };
///     t = model.layer("sine", std::make_shared<Sine>(), {t});
///
/// One object serves all ranks, microbatches and steps of a process, so it has no state that changes: what forward
/// leaves for backward goes through save() and saved().
class CustomLayer : public Operator, public Kernel {
 protected:
  /// Keeps tensors until the backward of the same microbatch. Operator::keeps() tells the memory model about them.
  static void save(const KernelCall& call, std::vector<Tensor> tensors);
  /// Returns the i-th tensor that save() kept.
  static const Tensor& saved(const KernelCall& call, std::size_t i = 0);
};

}  // namespace partita
