#pragma once

#include "partita/base/traffic.hpp"
#include "partita/base/window.hpp"
#include "partita/layouts/layout.hpp"
#include "partita/layouts/transfer.hpp"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace partita {

/// Owned boxes and the boxes that a windowed consumer needs, one of each a rank; the exchange between them is the halo.
struct Halo {
  Grid grid;
  std::vector<Box> owned, needed;

  /// This rank's part of the exchange.
  TransferPlan transfer(int rank) const { return plan_transfer(owned, needed, rank, grid); }
  /// What this rank sends, for elements of `element_size` bytes.
  Traffic traffic(int rank, Index element_size) const;
  /// True if no rank needs what it does not own.
  bool none() const;
  /// The widest halo on each side of each spatial dimension, e.g. "H 1+1 W 0+2" (below + above); "" for none.
  std::string widths(const Shape& shape) const;
};

/// The halo of x for y: every rank needs `reads` of the outputs that it owns, of the channels that it owns of x.
Halo halo_of(const Layout& x, const Layout& y, const std::function<Box(const Box& out)>& reads);

/// The halo of x for y = window(x): every rank needs the inputs that its own outputs read.
Halo halo_of_inputs(const Layout& x, const Layout& y, std::span<const Window> windows);

/// The halo of dy for dx: every rank needs the outputs that its own inputs touch.
Halo halo_of_outputs(const Layout& x, const Layout& y, std::span<const Window> windows);

}  // namespace partita
