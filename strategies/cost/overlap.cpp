#include "strategies/cost/overlap.hpp"

namespace partita {

int hides_behind(const LayerPlan& layer, const PlannedTraffic& item, bool split) {
  constexpr int nothing = -1, forward = 0, backward_data = 1, backward_filter = 2;
  const HaloOverlap overlap = layer.op->halo_overlap();
  switch (item.purpose) {
    case Purpose::halo_x:
      if (!overlap.x) return nothing;
      return item.pass == Pass::forward ? forward : forward_again;
    case Purpose::halo_dy: return overlap.dy && !split && layer.trains() ? backward_filter : nothing;
    case Purpose::halo_dx: return overlap.dx ? backward_data : nothing;
    default: return nothing;
  }
}

}  // namespace partita
