#include "strategies/plan/in_place.hpp"

#include <algorithm>

namespace partita {

namespace {

bool may_overwrite(const Plan& plan, int input, int reader) {
  const int stage = plan.stage_of(reader);
  return plan.stage_of(input) == stage && plan.all_readers.of(input).size() == 1 && !plan.needs_output(input, stage) &&
         plan.layers[input].op->output_may_be_overwritten();
}

/// A dropout in place whose one reader, an addition of tensors with its layout, leaves out the elements.
void mark_dropped_input(Plan& plan, int reader) {
  LayerPlan& layer = plan.layers[reader];
  if (!layer.op->drops_input() || layer.next_activation) return;
  for (int j = 0; j < std::ssize(layer.inputs) && layer.drops < 0; ++j) {
    LayerPlan& input = plan.layers[layer.inputs[j]];
    if (std::count(layer.inputs.begin(), layer.inputs.end(), layer.inputs[j]) > 1 || input.op->dropout_rate() == 0 ||
        !input.in_place || !may_overwrite(plan, layer.inputs[j], reader) || !input->redistribute_output.empty() ||
        !layer->redistribute_input[j].empty())
      continue;
    input.computed_by_reader = true;
    layer.drops = j;
  }
}

/// True if another reader of the layer's input has made its gradient when the layer makes its own, in every schedule:
/// one that comes later in its group or, if the group made the input, one in any other group.
bool follows_other_gradient(const Plan& plan, int reader) {
  const LayerPlan& layer = plan.layers[reader];
  const int input = layer.inputs.front();
  const auto readers = plan.all_readers.of(input);
  return std::any_of(readers.begin(), readers.end(), [&](int other) {
    const int group = plan.layers[other].group;
    return group == layer.group ? other > reader : plan.layers[input].group == layer.group;
  });
}

}  // namespace

void mark_in_place(Plan& plan) {
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    LayerPlan& layer = plan.layers[i];
    layer.forwards_gradient = layer.op->forwards_gradient();
    if (!layer.op->overwrites_input() || !may_overwrite(plan, layer.inputs.front(), static_cast<int>(i))) continue;
    layer.in_place = true;
    LayerPlan& producer = plan.layers[layer.inputs.front()];
    const auto f = layer.op->activation();
    const bool same_layout = producer->redistribute_output.empty() && layer->redistribute_input.front().empty();
    layer.fusible = f && same_layout && producer.op->activation_fusion(*f) != ActivationFusion::no;
    if (!layer.fusible) continue;
    producer.next_activation = f;
    layer.computed_by_producer = producer.activation_fusion() != ActivationFusion::where_fused;
    layer.forwards_gradient = producer.activation_fusion() == ActivationFusion::both;
  }
  for (int i = 0; i < std::ssize(plan.layers); ++i) {
    mark_dropped_input(plan, i);
    LayerPlan& layer = plan.layers[i];
    layer.adds_gradient = plan.workload.training && layer.op->adds_gradient() && layer.needs_any_dx() &&
                          layer->redistribute_dx.front().empty() && follows_other_gradient(plan, i);
  }
}

}  // namespace partita
