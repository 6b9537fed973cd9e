#pragma once

#include "partita/strategies/plan/plan.hpp"
#include "partita/strategies/plan/step_op.hpp"

#include <memory>
#include <span>
#include <vector>

namespace partita {

/// Returns true for operations with which an action waits for other stages before it begins. The time of the action
/// does not include them:
///
///     started by         its wait comes before
///     receive_input      the microbatch's forward (wait_inputs)
///     send_output        the microbatch's backward (wait_gradients), or in evaluation the next microbatch's forward
///                        (release_previous), or the end of the step (finish_outputs): it is long done by then
///     receive_gradient   the microbatch's backward (wait_gradients)
///     send_gradient      the stage's next backward (wait_gradients) or update, or with two replicas the reduction
///                        (wait_sent_gradients)
constexpr bool is_wait(StepOp::Kind kind) {
  using enum StepOp::Kind;
  return kind == release_previous || kind == wait_inputs || kind == wait_gradients || kind == wait_sent_gradients;
}

/// The type of the outputs, or of their gradients, that an operation moves.
DType moved_type(const Plan& plan, const StepOp& op);

class StageLayers;

/// Actions of a stage that do what those before them did, for later microbatches.
struct RepeatedActions {
  std::size_t first = 0, count = 0;
  int microbatches = 0;  ///< how many later than at `first` the microbatches are behind these actions
};

/// The operations of the ranks of one stage in a step: before the first action, for every action of the stage's
/// schedule, and after the last action.
class StepProgram {
 public:
  /// @pre `plan` outlives the program.
  StepProgram(const Plan& plan, int stage);

  const Plan& plan() const { return plan_; }
  /// The stage's part of the schedule.
  const std::vector<Action>& actions() const { return plan_.schedule.stages[stage_]; }
  /// The operations of actions()[position], in order.
  std::span<const StepOp> ops(std::size_t position) const { return lists_[list_of_action_[position]].ops; }
  /// The operations before the first action, and those after the last one.
  std::span<const StepOp> first_ops() const { return first_ops_; }
  std::span<const StepOp> last_ops() const { return last_ops_; }

  /// A list that several actions share: those that differ only in the microbatch.
  struct List {
    Action action;  ///< the first one of them
    std::vector<StepOp> ops;
    int times = 0;  ///< the number of actions
  };
  /// The distinct lists of operations of all actions, in the order of their first use.
  std::span<const List> lists() const { return lists_; }
  /// Returns actions in the middle of a long step that leave the stage as it was before them, but for the numbers of
  /// its microbatches: all that is then held was begun in the same order, by equal lists. None if the step is short.
  RepeatedActions repeated() const;
  /// The layers that the stage runs and reads.
  const StageLayers& stage_layers() const { return *stage_layers_; }

 private:
  /// Returns true if as many microbatches begin, and as many end, among `period` actions from `first` on.
  bool ends_what_it_begins(std::size_t first, std::size_t period, int microbatches) const;
  /// Returns the first of the actions that repeat from `begin` on before which only microbatches are held that began
  /// there too. Messages, and in evaluation outputs of the microbatch before, may be held up to two periods longer.
  std::size_t first_steady(std::size_t begin, std::size_t period) const;

  const Plan& plan_;
  int stage_;
  std::shared_ptr<const StageLayers> stage_layers_;
  std::vector<StepOp> first_ops_, last_ops_;
  std::vector<List> lists_;
  std::vector<std::size_t> list_of_action_;
};

}  // namespace partita
