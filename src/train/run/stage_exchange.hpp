#pragma once

#include "partita/comm/counting.hpp"
#include "partita/train/run/layer_runner.hpp"

#include <map>

namespace partita {

/// What a stage says to others: outputs go straight to the ranks that read them, gradients the same way back. Everything is
/// started where the schedule says, and waited for by who needs it:
///
///     receive_input     before the microbatch's forward       receive_gradient  before its backward
///     send_output       before its backward, when it is       send_gradient     before the stage's next backward
///                       long done
class StageExchange {
 public:
  StageExchange(const RunContext& context, Stream stream);

  /// Starts one transfer: an operation send_... or receive_...
  void perform(const StepOp& op, int replica, const std::vector<LayerPlan>& layers, Microbatch& m);
  /// Waits for the outputs of other stages that the microbatch's forward reads.
  static void finish_inputs(Microbatch& m);
  /// Waits until outputs and gradients that were sent have left, and for the gradients that arrive, which it adds.
  void finish_gradients(Microbatch& m);
  /// Waits until a microbatch's outputs are sent.
  static void finish_outputs(Microbatch& m);
  /// Lets all that travels go on, without waiting.
  void progress(std::vector<Microbatch>& microbatches);
  /// Waits until all gradients are sent.
  void finish();
  /// The sum of what the stages with the loss found, on every rank.
  StepResult share(const StepResult& result);

 private:
  const TransferPlan& transfer(const StageBoundary& boundary, bool back);
  Crossing start(const StageBoundary& boundary, bool back, int layer, Tensor tensor);
  Tensor allocate(const Layout& layout) const;

  const RunContext& context_;
  Stream stream_;
  std::map<std::pair<const StageBoundary*, bool>, TransferPlan> transfers_;
  std::vector<Crossing> gradients_;  // on their way out
};

}  // namespace partita
