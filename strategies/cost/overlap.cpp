#include "strategies/cost/overlap.hpp"

namespace partita {

std::optional<Computation> hides_behind(const LayerPlan& layer, const PlannedTraffic& item, const StepOp& op) {
  using Kind = StepOp::Kind;
  const HaloOverlap overlap = layer.op->halo_overlap();
  switch (item.purpose) {
    case Purpose::halo_x:
      if (!overlap.x || op.kind != Kind::forward) return std::nullopt;
      return op.recompute ? Computation::recomputed_forward : Computation::forward;
    case Purpose::halo_dy:
      if (!overlap.dy || op.kind != Kind::backward_filter) return std::nullopt;
      return Computation::backward_filter;
    case Purpose::halo_dx:
      if (!overlap.dx || op.kind != Kind::backward_data) return std::nullopt;
      return Computation::backward_data;
    default: return std::nullopt;
  }
}

}  // namespace partita
