#include "strategies/cost/overlap.hpp"

namespace partita {

namespace {

/// Returns true if dw is computed while the messages of start_backward travel: before backward_data, which waits for
/// them.
bool computes_filter_first(std::span<const StepOp> next) {
  for (const StepOp& op : next) {
    if (op.kind == StepOp::Kind::backward_filter) return true;
    if (op.kind == StepOp::Kind::backward_data) return false;
  }
  return false;
}

}  // namespace

int hides_behind(const LayerPlan& layer, const PlannedTraffic& item, std::span<const StepOp> next) {
  constexpr int nothing = -1, forward = 0, backward_data = 1, backward_filter = 2;
  const HaloOverlap overlap = layer.op->halo_overlap();
  switch (item.purpose) {
    case Purpose::halo_x:
      if (!overlap.x) return nothing;
      return item.op.recompute ? recomputed_forward : forward;
    case Purpose::halo_dy: return overlap.dy && computes_filter_first(next) ? backward_filter : nothing;
    case Purpose::halo_dx: return overlap.dx ? backward_data : nothing;
    default: return nothing;
  }
}

}  // namespace partita
