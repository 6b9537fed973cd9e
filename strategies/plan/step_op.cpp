#include "partita/strategies/plan/step_op.hpp"

#include "partita/base/error.hpp"

namespace partita {

std::string_view name(StepOp::Kind kind) {
  using enum StepOp::Kind;
  switch (kind) {
    case clear_statistics: return "clear_statistics";
    case read_batch: return "read_batch";
    case redistribute_input: return "redistribute_input";
    case forward: return "forward";
    case redistribute_output: return "redistribute_output";
    case redistribute_dy: return "redistribute_dy";
    case start_backward: return "start_backward";
    case backward_filter: return "backward_filter";
    case backward_data: return "backward_data";
    case redistribute_dx: return "redistribute_dx";
    case gather_weights: return "gather_weights";
    case wait_weights: return "wait_weights";
    case release_weights: return "release_weights";
    case scatter_gradients: return "scatter_gradients";
    case add_gradients: return "add_gradients";
    case release_work: return "release_work";
    case release_dy: return "release_dy";
    case release_kept: return "release_kept";
    case release_output: return "release_output";
    case release_layer: return "release_layer";
    case release_images: return "release_images";
    case release_target: return "release_target";
    case release_previous: return "release_previous";
    case sum_gradients: return "sum_gradients";
    case sum_zero_gradients: return "sum_zero_gradients";
    case finish_sums: return "finish_sums";
    case add_replicas: return "add_replicas";
    case add_copies: return "add_copies";
    case update: return "update";
    case send_output: return "send_output";
    case receive_input: return "receive_input";
    case send_gradient: return "send_gradient";
    case receive_gradient: return "receive_gradient";
    case wait_inputs: return "wait_inputs";
    case wait_gradients: return "wait_gradients";
    case wait_sent_gradients: return "wait_sent_gradients";
    case progress: return "progress";
    case finish_outputs: return "finish_outputs";
    case share_loss: return "share_loss";
  }
  broken("an operation of a step has no name");
}

}  // namespace partita
