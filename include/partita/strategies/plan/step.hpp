#pragma once

#include "partita/strategies/plan/plan.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace partita {

/// One operation of a rank in a step. A list of them is the one description of what a rank does: the executor runs it, memory.hpp
/// replays it in bytes, traffic.hpp counts its messages, and the cost model prices it. Tensors belong to a layer and a microbatch.
struct StepOp {
  enum class Kind : std::uint8_t {
    read_batch,           ///< the rank's part of the microbatch's images and targets arrives
    redistribute_input,   ///< output of layer.inputs[input] -> x[input]
    forward,              ///< y = f(x, w), with x's halo, statistics and products; keeps what backward needs
    redistribute_output,  ///< y -> output
    redistribute_dy,      ///< gradient -> dy
    start_backward,       ///< starts what can travel while backward_filter computes: dy's halo, statistics
    backward_filter,      ///< dw += this rank's part
    backward_data,        ///< dx[...] of all inputs
    redistribute_dx,      ///< dx[input] -> added to the gradient of layer.inputs[input]
    release_work,         ///< frees x, y, dx: what one pass of one layer works on
    release_dy,           ///< frees dy
    release_kept,         ///< frees what forward kept for backward
    release_output,       ///< frees the output
    release_layer,        ///< frees output, gradient, dy and what forward kept
    release_images,       ///< frees the microbatch's images
    release_target,       ///< frees what its loss compares with
    release_previous,     ///< evaluation: ends the sends of the microbatch before this one, and frees all of it
    sum_gradients,        ///< starts the sums of the buckets that this layer completes
    sum_zero_gradients,   ///< the same for all buckets of a group that no microbatch went through: with zeros
    finish_sums,          ///< waits until all gradients are summed
    add_replicas,         ///< adds gradients and running statistics of both replicas
    update,               ///< the optimizer's update of a group's weights, which a sharded optimizer gathers afterwards
    send_output,          ///< sends_to_stages[boundary]: y, with its sums completed, starts
    receive_input,        ///< ... and its arrival on the other stage
    send_gradient,        ///< sends_to_stages[boundary]: the gradient that goes back starts
    receive_gradient,     ///< ... and its arrival on the layer's stage
    wait_inputs,          ///< waits for the outputs of other stages that this microbatch needs
    wait_gradients,       ///< waits until what was sent has left, and adds the gradients that have arrived
    wait_sent_gradients,  ///< waits until all gradients have left
    progress,             ///< lets messages between stages advance
  };
  Kind kind = Kind::forward;
  bool recompute = false;  ///< of a forward and its redistributions: run once more, during backward
  std::int16_t part = 0;   ///< the input, or the boundary
  int layer = -1;          ///< -1 for operations of a whole group
  bool operator==(const StepOp&) const = default;
};

/// The name of an operation, as its enumerator.
std::string_view name(StepOp::Kind kind);

class StageLayers;

/// What the ranks of one stage do in a step: the operations of every action of the stage's schedule.
class StepProgram {
 public:
  /// @pre `plan` outlives the program.
  StepProgram(const Plan& plan, int stage);

  /// The stage's part of the schedule.
  const std::vector<Action>& actions() const { return plan_.schedule.stages[static_cast<std::size_t>(stage_)]; }
  /// The operations of actions()[position], in order.
  std::span<const StepOp> ops(std::size_t position) const { return lists_[list_of_action_[position]]; }
  /// Which layers the stage runs and reads.
  const StageLayers& stage_layers() const { return *stage_layers_; }

 private:
  const Plan& plan_;
  int stage_;
  std::shared_ptr<const StageLayers> stage_layers_;
  std::vector<std::vector<StepOp>> lists_;  // those that differ
  std::vector<std::size_t> list_of_action_;
};

}  // namespace partita
