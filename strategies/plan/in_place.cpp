#include "strategies/plan/in_place.hpp"

namespace partita {

namespace {

bool may_overwrite(const Plan& plan, int input, int reader) {
  const int stage = plan.stage_of(reader);
  return plan.stage_of(input) == stage && plan.all_readers.of(input).size() == 1 && !plan.needs_output(input, stage) &&
         plan.layers[input].op->output_may_be_overwritten();
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
}

}  // namespace partita
