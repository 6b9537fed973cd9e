#include "src/train/executor/batch_boxes.hpp"

namespace partita {

Box image_box(const Plan& plan, int layer, int microbatch, int rank) {
  const auto& input = plan.layers_of(microbatch)[layer];
  const bool reads = plan.stage_of(layer, plan.replica_of(microbatch)) == plan.stage_of_rank(rank);
  return reads ? input->y.owned(plan.rank_in_stage(rank)) : Box(input->shape.dims());
}

Box target_box(const Plan& plan, int microbatch, int rank) {
  const auto& loss = plan.layers_of(microbatch).back();
  const Shape shape = loss.op->target(loss->input_shapes[0]).shape;
  const int last = static_cast<int>(plan.layers.size()) - 1;
  const bool reads = plan.stage_of(last, plan.replica_of(microbatch)) == plan.stage_of_rank(rank);
  return reads ? loss->at.x[0].onto(shape).owned(plan.rank_in_stage(rank)) : Box(shape.dims());
}

}  // namespace partita
