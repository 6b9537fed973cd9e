#pragma once

#include "partita/base/traffic.hpp"
#include "partita/base/window.hpp"
#include "partita/layouts/layout.hpp"
#include "partita/layouts/transfer.hpp"

#include <functional>
#include <memory>
#include <span>
#include <string>

namespace partita {

/// What ranks own of one tensor, and what a windowed consumer needs of it: the exchange between the two is the halo. A value
/// that computes the boxes of the ranks that are asked for, so that its size does not grow with the grid's.
class Halo {
 public:
  /// The box that a rank needs to compute (or because it owns) the box `out` of the consumer.
  using Reads = std::function<Box(const Box& out)>;

  /// The halo of `owner`'s tensor for `consumer`'s: every rank needs `reads` of what it owns of the latter, of the channels that
  /// it owns of the former. Both layouts place samples alike, on one grid.
  Halo(const Layout& owner, const Layout& consumer, Reads reads);
  /// The same; `along` are the only axes along which ranks need what others own, as the caller knows.
  Halo(const Layout& owner, const Layout& consumer, Reads reads, AxisSet along);

  const Grid& grid() const { return parts_->owner.grid(); }
  /// The axes along which ranks may need what others own; none, and nothing moves.
  AxisSet axes() const { return parts_->axes; }
  Box owned(int rank) const { return parts_->owner.owned(rank); }
  /// Of the channels a rank needs those that it owns: halos are spatial.
  Box needed(int rank) const;

  /// The same on another grid of the same axes.
  Halo on(const Grid& grid) const;

  /// This rank's part of the exchange.
  TransferPlan transfer(int rank) const;
  /// What this rank sends, for elements of `element_size` bytes.
  Traffic traffic(int rank, Index element_size) const;
  /// True if no rank needs what it does not own.
  bool none() const;
  /// The widest halo on each side of each spatial dimension, e.g. "H 1+1 W 0+2" (below + above); "" for none.
  std::string widths() const;

 private:
  struct Parts {
    Layout owner, consumer;
    Reads reads;
    AxisSet axes;  // ranks that differ along others have nothing to do with each other
  };
  std::shared_ptr<const Parts> parts_;  // shared by copies
};

/// The halo of x for y = window(x): every rank needs the inputs that its own outputs read. One window a dimension of space.
Halo halo_of_inputs(const Layout& x, const Layout& y, std::span<const Window> windows);

/// The halo of dy for dx: every rank needs the outputs that its own inputs touch.
Halo halo_of_outputs(const Layout& x, const Layout& y, std::span<const Window> windows);

}  // namespace partita
