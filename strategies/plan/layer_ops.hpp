#pragma once

#include "partita/strategies/plan/step.hpp"

namespace partita {

// The order of operations inside one layer. StepProgram combines the layers of a stage. Traffic and cost look at one
// layer alone.

/// Calls visit(op) for each operation of a layer's forward.
template <class Visit>
void each_forward_op(const LayerPlan& layer, int index, bool recompute, Visit&& visit) {
  using enum StepOp::Kind;
  for (std::size_t j = 0; j < layer.inputs.size(); ++j)
    visit(StepOp{redistribute_input, recompute, static_cast<std::int16_t>(j), index});
  visit(StepOp{forward, recompute, 0, index});
  visit(StepOp{redistribute_output, recompute, 0, index});
  visit(StepOp{release_work, recompute, 0, index});
}

/// Calls visit(op) for each operation of a layer's backward up to its dx. With `filter`, dw is computed before dx;
/// otherwise a later action computes it.
template <class Visit>
void each_backward_op(const LayerPlan& layer, int index, bool filter, Visit&& visit) {
  using enum StepOp::Kind;
  if (!layer.has_backward()) return;
  if (!layer.op->is_loss()) visit(StepOp{redistribute_dy, false, 0, index});
  visit(StepOp{start_backward, false, 0, index});
  if (filter && layer.trains()) visit(StepOp{backward_filter, false, 0, index});
  if (layer.needs_any_dx()) {
    visit(StepOp{backward_data, false, 0, index});
    for (std::size_t j = 0; j < layer.inputs.size(); ++j)
      if (layer->needs_dx[j]) visit(StepOp{redistribute_dx, false, static_cast<std::int16_t>(j), index});
    visit(StepOp{release_work, false, 0, index});
  }
}

/// Calls visit(op) for every operation of a layer for one microbatch: forward and, in training, recomputation and
/// backward.
template <class Visit>
void each_microbatch_op(const LayerPlan& layer, int index, bool training, Visit&& visit) {
  each_forward_op(layer, index, false, visit);
  if (!training) return;
  if (layer.recompute) each_forward_op(layer, index, true, visit);
  each_backward_op(layer, index, true, visit);
}

}  // namespace partita
