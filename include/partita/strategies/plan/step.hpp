#pragma once

#include "partita/strategies/plan/plan.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace partita {

/// The list of all operations: EACH(kind).
#define PARTITA_STEP_OPS(EACH)                                                                                         \
  EACH(clear_statistics) /* before the first action: zeroes a second replica's running statistics, which are added */  \
  EACH(read_batch)       /* reads the rank's part of the microbatch's images and targets */                            \
  EACH(redistribute_input)  /* output of layer.inputs[input] -> x[input] */                                            \
  EACH(forward)             /* y = f(x, w), with x's halo, statistics and products; keeps the tensors for backward */  \
  EACH(redistribute_output) /* y -> output */                                                                          \
  EACH(redistribute_dy)     /* gradient -> dy */                                                                       \
  EACH(start_backward)      /* starts messages that travel while backward_filter computes: dy's halo, statistics */    \
  EACH(backward_filter)     /* dw += this rank's part */                                                               \
  EACH(backward_data)       /* dx[...] of all inputs */                                                                \
  EACH(redistribute_dx)     /* dx[input] -> added to the gradient of layer.inputs[input] */                            \
  EACH(release_work)        /* frees x, y and dx, the work tensors of one pass of one layer */                         \
  EACH(release_dy)          /* frees dy */                                                                             \
  EACH(release_kept)        /* frees the tensors that forward kept for backward */                                     \
  EACH(release_output)      /* frees the output */                                                                     \
  EACH(release_layer)       /* frees output, gradient, dy and the tensors that forward kept */                         \
  EACH(release_images)      /* frees the microbatch's images */                                                        \
  EACH(release_target)      /* frees the target of the microbatch's loss */                                            \
  EACH(release_previous)    /* evaluation: completes the sends of the previous microbatch and frees all its tensors */ \
  EACH(sum_gradients)       /* starts the sums of the buckets that this layer completes */                             \
  EACH(sum_zero_gradients)  /* starts the sums of all buckets of a group that ran no microbatch, with zeros */         \
  EACH(finish_sums)         /* waits until all gradients are summed */                                                 \
  EACH(add_replicas)        /* adds gradients and running statistics of both replicas */                               \
  EACH(update)              /* the optimizer's update of a group's weights; a sharded optimizer then gathers them */   \
  EACH(send_output)         /* completes the sums of y and starts to send it along sends_to_stages[part] */            \
  EACH(receive_input)       /* starts to receive that y on the other stage */                                          \
  EACH(send_gradient)       /* starts to send the gradient back along sends_to_stages[part] */                         \
  EACH(receive_gradient)    /* starts to receive that gradient on the layer's stage */                                 \
  EACH(wait_inputs)         /* waits for the outputs of other stages that this microbatch needs */                     \
  EACH(wait_gradients)      /* waits for sends to complete and for gradients to arrive, and adds the gradients */      \
  EACH(wait_sent_gradients) /* waits until all gradients are sent */                                                   \
  EACH(progress)            /* advances messages between stages */                                                     \
  EACH(finish_outputs)      /* after the last action: waits until all outputs are sent */                              \
  EACH(share_loss)          /* after the last action: adds the losses of all stages on every rank */

/// One operation of a rank in a step. The list of operations is the only description of a rank's work: the executor
/// runs it, memory.hpp replays it in bytes, and traffic.hpp counts its messages. The cost model prices the same
/// operations layer by layer. Tensors belong to a layer and a microbatch.
struct StepOp {
#define PARTITA_KIND(NAME) NAME,
  enum class Kind : std::uint8_t { PARTITA_STEP_OPS(PARTITA_KIND) };
#undef PARTITA_KIND
  Kind kind = Kind::forward;
  bool recompute = false;  ///< for a forward and its redistributions: run again during backward
  std::int16_t part = 0;   ///< index of the input or of the stage boundary
  int layer = -1;          ///< -1 for operations of a whole group or of the whole stage
  bool operator==(const StepOp&) const = default;
};

/// Returns the name of an operation's enumerator.
std::string_view name(StepOp::Kind kind);

/// Returns true for operations with which an action waits for other stages before it begins. The time of the action
/// does not include them:
///
///     started by         its wait comes before
///     receive_input      the microbatch's forward (wait_inputs)
///     send_output        the microbatch's backward (wait_gradients), or in evaluation the next microbatch's forward
///                        (release_previous), or the end of the step (finish_outputs): it is long done by then
///     receive_gradient   the microbatch's backward (wait_gradients)
///     send_gradient      the stage's next backward (wait_gradients) or the reduction (wait_sent_gradients)
constexpr bool is_wait(StepOp::Kind kind) {
  using enum StepOp::Kind;
  return kind == release_previous || kind == wait_inputs || kind == wait_gradients || kind == wait_sent_gradients;
}

class StageLayers;

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
  /// The layers that the stage runs and reads.
  const StageLayers& stage_layers() const { return *stage_layers_; }

 private:
  const Plan& plan_;
  int stage_;
  std::shared_ptr<const StageLayers> stage_layers_;
  std::vector<StepOp> first_ops_, last_ops_;
  std::vector<List> lists_;
  std::vector<std::size_t> list_of_action_;
};

}  // namespace partita
