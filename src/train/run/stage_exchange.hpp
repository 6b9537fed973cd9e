#pragma once

#include "partita/comm/counting.hpp"
#include "partita/train/run/layer_group.hpp"

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
  /// All references must outlive it; `world` holds the ranks of all stages.
  StageExchange(const Plan& plan, Communicator& world, const ProcessGrid& grid, TrafficCounter& counter,
                const std::shared_ptr<Allocator>& allocator, Stream stream);

  /// Performs a transfer of the schedule.
  void perform(const Action& action, const std::vector<LayerPlan>& layers, Microbatch& m);
  /// Waits for what arrives for a forward; for what arrives for a backward, which is added to the gradients there are.
  static void finish_inputs(Microbatch& m);
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

  const Plan& plan_;
  Communicator& world_;
  const ProcessGrid& grid_;
  TrafficCounter& counter_;
  std::shared_ptr<Allocator> allocator_;
  Stream stream_;
  std::map<std::pair<const StageBoundary*, bool>, TransferPlan> transfers_;
  std::vector<Crossing> gradients_;  // on their way out
};

}  // namespace partita
