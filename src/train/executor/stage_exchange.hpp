#pragma once

#include "partita/comm/counting.hpp"
#include "src/train/executor/layer_runner.hpp"

#include <array>
#include <map>

namespace partita {

/// What the losses of a step have added up, as means over all elements of the target: the loss, the right predictions,
/// the weights, and the elements that count. The last two are 0 if all count alike.
using LossSums = std::array<double, 4>;

/// The messages between a stage and others. Outputs go straight to the ranks that read them, and gradients go back the
/// same way. The schedule says when a transfer starts; is_wait() in step.hpp lists when an operation waits for it.
class StageExchange {
 public:
  StageExchange(const RunContext& context, Stream stream);

  /// Starts one transfer: an operation send_... or receive_...
  void run(const StepOp& op, int replica, const std::vector<LayerPlan>& layers, Microbatch& m);
  /// Waits for the outputs of other stages that the microbatch's forward reads.
  static void finish_inputs(Microbatch& m);
  /// Waits until the microbatch's outputs and all gradients are sent and until the microbatch's gradients have arrived.
  /// Adds the gradients that have arrived.
  void finish_gradients(Microbatch& m);
  /// Waits until a microbatch's outputs are sent.
  static void finish_outputs(Microbatch& m);
  /// Advances all transfers without waiting.
  void progress(std::vector<Microbatch>& microbatches);
  /// Waits until all gradients are sent.
  void finish();
  /// Returns the sum over the stages that run the loss. Collective: every rank of the world calls it.
  LossSums share(const LossSums& sums);

 private:
  const TransferPlan& transfer(const StageBoundary& boundary, bool back);
  Crossing start(const StageBoundary& boundary, bool back, int layer, Tensor tensor);
  Tensor allocate(const LayerPlan& layer, const Layout& layout) const;

  const RunContext& context_;
  Stream stream_;
  std::map<std::pair<const StageBoundary*, bool>, TransferPlan> transfers_;
  std::vector<Crossing> gradients_;  // gradients that are being sent
};

}  // namespace partita
