#pragma once

#include <cstdint>
#include <string_view>

namespace partita {

/// One operation of a rank in a step. The list of operations (StepProgram) is the only description of a rank's work:
/// the executor runs it, memory.hpp replays it in bytes, and traffic.hpp counts its messages. The cost model prices the
/// same operations layer by layer. Tensors belong to a layer and a microbatch.
struct StepOp {
  enum class Kind : std::uint8_t {
    clear_statistics,     ///< before the first action: zeroes a second replica's running statistics, which are added
    read_batch,           ///< reads the rank's part of the microbatch's images and target
    redistribute_input,   ///< output of layer.inputs[input] -> x[input]
    forward,              ///< y = f(x, w), with x's halo, statistics and products; keeps the tensors for backward
    redistribute_output,  ///< y -> output
    redistribute_dy,      ///< gradient -> dy
    start_backward,       ///< starts messages that travel while backward_filter computes: dy's halo, statistics
    backward_filter,      ///< dw += this rank's part
    backward_data,        ///< dx[...] of all inputs
    gather_weights,       ///< starts to gather the weights that rest in shards
    wait_weights,         ///< waits until they are gathered
    release_weights,      ///< frees what was gathered
    scatter_gradients,    ///< starts to sum and scatter the part that backward_filter made, for weights in shards
    add_gradients,        ///< waits for that, dw += the sums
    redistribute_dx,      ///< dx[input] -> added to the gradient of layer.inputs[input]
    release_work,         ///< frees x, y and dx, the work tensors of one pass of one layer
    release_dy,           ///< frees dy
    release_kept,         ///< frees the tensors that forward kept for backward
    release_output,       ///< frees the output
    release_layer,        ///< frees output, gradient, dy and the tensors that forward kept
    release_images,       ///< frees the images of an input layer
    release_target,       ///< frees the target of the microbatch's loss
    release_previous,     ///< evaluation: completes the sends of the previous microbatch and frees all its tensors
    sum_gradients,        ///< starts the sums of the buckets that this layer completes
    sum_zero_gradients,   ///< starts the sums of all buckets of a group that ran no microbatch, with zeros
    finish_sums,          ///< waits until all gradients are summed
    add_replicas,         ///< adds gradients and running statistics of both replicas
    add_copies,           ///< adds the gradients of both copies of the table that this layer completes the sum of
    update,               ///< the optimizer's update of a group's weights; a sharded optimizer then gathers them
    send_output,          ///< completes the sums of y and starts to send it along sends_to_stages[part]
    receive_input,        ///< starts to receive that y on the other stage
    send_gradient,        ///< starts to send the gradient back along sends_to_stages[part]
    receive_gradient,     ///< starts to receive that gradient on the layer's stage
    wait_inputs,          ///< waits for the outputs of other stages that this microbatch needs
    wait_gradients,       ///< waits for sends to complete and for gradients to arrive, and adds the gradients
    wait_sent_gradients,  ///< waits until all gradients are sent
    progress,             ///< advances messages between stages
    finish_outputs,       ///< after the last action: waits until all outputs are sent
    share_loss,           ///< after the last action: adds the losses of all stages on every rank
  };
  Kind kind = Kind::forward;
  bool recompute = false;  ///< for a forward and its redistributions: run again during backward
  /// index of the input or of the stage boundary; for gather_weights the action of the microbatch that needs them: 0
  /// for forward, 1 for a backward, 2 for a backward_filter of its own
  std::int16_t part = 0;
  int layer = -1;             ///< -1 for operations of a whole group or of the whole stage
  bool data_follows = false;  ///< for a backward_filter: the next operation is the layer's backward_data
  bool operator==(const StepOp&) const = default;
};

/// Returns the name of an operation's enumerator.
std::string_view name(StepOp::Kind kind);

}  // namespace partita
