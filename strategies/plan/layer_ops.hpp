#pragma once

#include "strategies/plan/step.hpp"

#include <span>

namespace partita {

// The order of operations inside one layer, of layers inside one action, and of actions of one microbatch. StepProgram
// composes a stage's step of these functions. The cost model and the traffic of one microbatch look at one layer alone
// and visit the same operations.

/// True if the schedule splits a backward pass into its data half and its filter half.
bool splits_backward(const Schedule& schedule);

/// Returns the actions that each microbatch passes through, in order: forward and, in training, backward or its two
/// halves.
std::span<const Action::Kind> microbatch_actions(bool training, bool split);

/// Returns true for the actions that compute gradients of weights.
inline bool forms_gradients(Action::Kind kind) {
  return kind == Action::Kind::backward || kind == Action::Kind::backward_filter;
}

/// Calls visit(layer) for the layers [first, end) of a group, in the order in which an action runs them.
template <class Visit>
void each_layer_of(Action::Kind kind, int first, int end, Visit&& visit) {
  if (kind == Action::Kind::forward)
    for (int i = first; i < end; ++i) visit(i);
  else
    for (int i = end; i-- > first;) visit(i);
}

/// Calls visit(op) for the operations with which a layer that has weights in shards gets them. StepProgram lets the
/// first of them start earlier, when the layer with such weights before it begins. `part` as StepOp::part.
template <class Visit>
void each_gather_op(const LayerPlan& layer, int index, bool recompute, std::int16_t part, Visit&& visit) {
  if (!layer.gathers_weights()) return;
  visit(StepOp{StepOp::Kind::gather_weights, recompute, part, index});
  visit(StepOp{StepOp::Kind::wait_weights, recompute, 0, index});
}

/// Calls visit(op) for each operation of a layer's forward.
template <class Visit>
void each_forward_op(const LayerPlan& layer, int index, bool recompute, Visit&& visit) {
  using enum StepOp::Kind;
  each_gather_op(layer, index, recompute, recompute ? 1 : 0, visit);
  for (std::size_t j = 0; j < layer.inputs.size(); ++j)
    visit(StepOp{redistribute_input, recompute, static_cast<std::int16_t>(j), index});
  visit(StepOp{forward, recompute, 0, index});
  if (layer.gathers_weights()) visit(StepOp{release_weights, recompute, 0, index});
  visit(StepOp{redistribute_output, recompute, 0, index});
  visit(StepOp{release_work, recompute, 0, index});
}

/// Calls visit(op) for each operation that computes the gradients of a layer's weights. `data_follows` as
/// StepOp::data_follows.
template <class Visit>
void each_filter_op(const LayerPlan& layer, int index, bool data_follows, Visit&& visit) {
  visit(StepOp{StepOp::Kind::backward_filter, false, 0, index, data_follows && !layer.gathers_weights()});
  if (layer.gathers_weights()) visit(StepOp{StepOp::Kind::scatter_gradients, false, 0, index});
}

/// Calls visit(op) for each operation with which a backward action computes a layer's gradients. A whole backward
/// computes dw before dx, while the messages of start_backward travel.
template <class Visit>
void each_gradient_op(const LayerPlan& layer, int index, Action::Kind kind, Visit&& visit) {
  using enum StepOp::Kind;
  const bool dw = kind != Action::Kind::backward_data && layer.trains();
  const bool dx = layer.needs_any_dx();
  if (!dx && !layer.trains()) return;
  const bool filter = kind == Action::Kind::backward_filter;
  if (filter && !dw) return;
  const bool gathers = layer.gathers_weights() && layer.reads_weights(kind);
  const auto end_use = [&] {
    if (gathers) visit(StepOp{StepOp::Kind::release_weights, false, 0, index});
  };
  if (gathers) each_gather_op(layer, index, false, filter ? 2 : 1, visit);
  if (filter) {
    each_filter_op(layer, index, false, visit);
    return end_use();
  }
  if (!layer.op->is_loss()) visit(StepOp{redistribute_dy, false, 0, index});
  visit(StepOp{start_backward, false, 0, index});
  if (dw) each_filter_op(layer, index, dx, visit);
  if (!dx) return end_use();
  visit(StepOp{backward_data, false, 0, index});
  end_use();
  for (std::size_t j = 0; j < layer.inputs.size(); ++j)
    if (layer->needs_dx[j]) visit(StepOp{redistribute_dx, false, static_cast<std::int16_t>(j), index});
  visit(StepOp{release_work, false, 0, index});
}

/// Calls visit(op) for each operation with which a backward action ends a layer, after its gradients. `last`: no later
/// action of the step computes gradients of the group's weights, so the layer's gradients are summed.
template <class Visit>
void each_end_op(const LayerPlan& layer, int index, Action::Kind kind, bool last, Visit&& visit) {
  using enum StepOp::Kind;
  const bool data = kind == Action::Kind::backward_data;
  if (kind == Action::Kind::backward && layer.has_backward()) visit(StepOp{release_dy, false, 0, index});
  if (!data && layer.trains() && layer.gathers_weights()) visit(StepOp{add_gradients, false, 0, index});
  if (last && !data) visit(StepOp{sum_gradients, false, 0, index});
  if (!data || !layer.trains()) visit(StepOp{release_layer, false, 0, index});
  visit(StepOp{progress, false, 0, index});
}

/// Calls visit(op) for each operation of a layer in a backward action, without recomputation; `last` as in
/// each_end_op().
template <class Visit>
void each_backward_op(const LayerPlan& layer, int index, Action::Kind kind, bool last, Visit&& visit) {
  each_gradient_op(layer, index, kind, visit);
  each_end_op(layer, index, kind, last, visit);
}

/// Calls visit(op) for each operation of a layer in one action of a microbatch, `last` as in each_end_op(). If a
/// layer is recomputed for one of its readers, StepProgram recomputes it at that reader's turn.
template <class Visit>
void each_layer_op(const LayerPlan& layer, int index, Action::Kind kind, bool last, Visit&& visit) {
  if (kind == Action::Kind::forward) return each_forward_op(layer, index, false, visit);
  if (layer.recompute && kind != Action::Kind::backward_filter) each_forward_op(layer, index, true, visit);
  each_backward_op(layer, index, kind, last, visit);
}

/// Calls visit(op) for the transfers of one kind (send_... or receive_...) of a layer's output to the group `consumer`,
/// or of its gradient back.
template <class Visit>
void each_transfer_op(const LayerPlan& layer, int index, StepOp::Kind kind, int consumer, Visit&& visit) {
  const bool back = kind == StepOp::Kind::send_gradient || kind == StepOp::Kind::receive_gradient;
  if (back && !layer.has_backward()) return;
  for (std::size_t b = 0; b < layer.sends_to_stages.size(); ++b)
    if (layer.sends_to_stages[b].group == consumer) visit(StepOp{kind, false, static_cast<std::int16_t>(b), index});
}

/// Calls visit(op) for each operation of a layer for one microbatch, in order: on its stage and, for
/// send_gradient, on the stages that read its output.
template <class Visit>
void each_microbatch_op(const LayerPlan& layer, int index, std::span<const Action::Kind> actions, Visit&& visit) {
  const auto transfers = [&](StepOp::Kind kind) {
    for (const auto& boundary : layer.sends_to_stages) each_transfer_op(layer, index, kind, boundary.group, visit);
  };
  for (const Action::Kind kind : actions) {
    if (kind == Action::Kind::backward || kind == Action::Kind::backward_data) transfers(StepOp::Kind::send_gradient);
    each_layer_op(layer, index, kind, false, visit);
    if (kind == Action::Kind::forward) transfers(StepOp::Kind::send_output);
  }
}

/// Calls visit(op) for each operation of a group once per step, in an action `reduce` or `step`. `idle`: the stage ran
/// no microbatch of the group.
template <class Visit>
void each_group_op(const Plan& plan, Action::Kind kind, bool idle, Visit&& visit) {
  using enum StepOp::Kind;
  const auto add = [&](StepOp::Kind op) { visit(StepOp{op, false, 0, -1}); };
  // Another stage may take gradients late. Sums need not wait for that, but the other replica may be on that stage.
  if ((kind == Action::Kind::reduce) == plan.second_replica.has_value()) add(wait_sent_gradients);
  if (kind == Action::Kind::step) return add(update);
  if (idle) add(sum_zero_gradients);
  add(finish_sums);
  if (plan.second_replica) add(add_replicas);
}

/// Calls visit(op) for each operation with which a stage's last action `reduce` ends: sums over both copies of tables.
/// Nothing else is left to compute then, and tables come in the same order on all stages, so that no stage waits for
/// one that waits for it.
template <class Visit>
void each_copy_op(const Plan& plan, int stage, Visit&& visit) {
  for (int first = 0; first < std::ssize(plan.buckets); ++first) {
    const int other = plan.buckets[first].other_copy;
    if (other < first) continue;  // it has none, or was visited with its other copy
    for (const int b : {first, other}) {
      const Bucket& bucket = plan.buckets[b];
      if (plan.replica_on(plan.layers[bucket.last()].group, stage) < 0 || plan.is_second_copy(bucket, stage)) continue;
      visit(StepOp{StepOp::Kind::add_copies, false, 0, bucket.last()});
    }
  }
}

/// Calls visit(op) for each operation after the last action of the step.
template <class Visit>
void each_last_op(const Plan& plan, Visit&& visit) {
  if (plan.grids.size() == 1) return;
  visit(StepOp{StepOp::Kind::finish_outputs, false, 0, -1});
  visit(StepOp{StepOp::Kind::share_loss, false, 0, static_cast<int>(plan.layers.size()) - 1});
}

/// Calls visit(op) for each operation of a layer once per step: those with which its last backward and its group's
/// reduction and update, and the end of the step, treat the layer.
template <class Visit>
void each_step_op(const Plan& plan, int index, Visit&& visit) {
  using enum StepOp::Kind;
  const LayerPlan& layer = plan.layers[index];
  if (plan.workload.training) {
    const auto sums = [&](const StepOp& op) {
      if (op.kind == sum_gradients) visit(op);
    };
    each_end_op(layer, index, Action::Kind::backward, true, sums);
    each_group_op(plan, Action::Kind::reduce, false, visit);
    each_copy_op(plan, plan.stage_of(index), [&](const StepOp& op) {
      if (op.layer == index) visit(op);
    });
    each_group_op(plan, Action::Kind::step, false, visit);
  }
  each_last_op(plan, [&](const StepOp& op) {
    if (op.layer == index) visit(op);
  });
}

}  // namespace partita
