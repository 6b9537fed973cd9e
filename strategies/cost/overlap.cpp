#include "strategies/cost/overlap.hpp"

namespace partita {

int hides_behind(const LayerPlan& layer, const PlannedTraffic& item, const StepOp& op) {
  using enum StepOp::Kind;
  constexpr int nothing = -1, in_forward = 0, in_data = 1, in_filter = 2;
  const HaloOverlap overlap = layer.op->halo_overlap();
  switch (item.purpose) {
    case Purpose::halo_x:
      if (!overlap.x || op.kind != forward) return nothing;
      return op.recompute ? recomputed_forward : in_forward;
    case Purpose::halo_dy: return overlap.dy && op.kind == backward_filter ? in_filter : nothing;
    case Purpose::halo_dx: return overlap.dx && op.kind == backward_data ? in_data : nothing;
    default: return nothing;
  }
}

}  // namespace partita
