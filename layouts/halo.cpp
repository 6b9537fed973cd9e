#include "partita/layouts/halo.hpp"

#include "partita/base/error.hpp"

#include <algorithm>

namespace partita {

Traffic Halo::traffic(int rank, Index element_size) const {
  const auto plan = transfer(rank);
  return {static_cast<Index>(plan.sends.size()), plan.sent() * element_size};
}

bool Halo::none() const {
  for (std::size_t rank = 0; rank < owned.size(); ++rank)
    if (!owned[rank].contains(needed[rank])) return false;
  return true;
}

std::string Halo::widths(const Shape& shape) const {
  std::string text;
  for (int d = 0; d < shape.dims(); ++d) {
    if (!is_spatial(shape.name(d))) continue;
    Index below = 0, above = 0;
    for (std::size_t rank = 0; rank < owned.size(); ++rank) {
      if (needed[rank].empty()) continue;
      if (owned[rank].empty()) {  // all that it needs comes from others
        above = std::max(above, needed[rank].extent(d));
        continue;
      }
      below = std::max(below, owned[rank][d].lo - needed[rank][d].lo);
      above = std::max(above, needed[rank][d].hi - owned[rank][d].hi);
    }
    if (below > 0 || above > 0) text += fmt::format("{}{} {}+{}", text.empty() ? "" : " ", shape.name(d), below, above);
  }
  return text;
}

// The halo is spatial: of the channels a rank needs those that it owns.
Halo halo_of(const Layout& x, const Layout& y, const std::function<Box(const Box&)>& reads) {
  Halo halo{x.grid(), x.owned(), {}};
  for (int rank = 0; rank < x.grid().size(); ++rank) {
    halo.needed.push_back(reads(y.owned(rank)));
    halo.needed.back()[1] = halo.owned[static_cast<std::size_t>(rank)][1];
  }
  return halo;
}

Halo halo_of_inputs(const Layout& x, const Layout& y, std::span<const Window> windows) {
  return halo_of(x, y, [&](const Box& out) { return inputs_of(windows, out, x.shape()); });
}

Halo halo_of_outputs(const Layout& x, const Layout& y, std::span<const Window> windows) {
  return halo_of(y, x, [&](const Box& in) { return outputs_of(windows, in, y.shape()); });
}

}  // namespace partita
