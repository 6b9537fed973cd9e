#pragma once

#include "partita/base/window.hpp"
#include "partita/layouts/layout.hpp"
#include "partita/layouts/transfer.hpp"

#include <functional>
#include <memory>
#include <span>
#include <string>

namespace partita {

/// The halo of a tensor: the exchange between what the ranks own of it and what a windowed consumer needs of it. Boxes
/// are computed only for the ranks that are asked for, so the size of a Halo does not grow with the grid.
class Halo {
 public:
  /// Returns the smallest box that holds all of the box `within` that a rank needs if it owns the box `out` of the
  /// consumer's tensor.
  using Reads = std::function<Box(const Box& out, const Box& within)>;

  /// The halo of the tensor with layout `owner`, for a consumer whose tensor has the layout `consumer`. Every rank
  /// needs `reads` of the box that it owns in `consumer`, restricted to the channels that it owns in `owner`.
  /// @pre Both layouts shard the samples in the same way, on the same grid.
  Halo(const Layout& owner, const Layout& consumer, Reads reads);
  /// As above, for a caller that knows that ranks need elements of other ranks only along the axes `along`.
  Halo(const Layout& owner, const Layout& consumer, Reads reads, AxisSet along);

  const Grid& grid() const { return parts_->owner.grid(); }
  /// The axes along which ranks may need what others own. Nothing moves if there are none.
  AxisSet axes() const { return parts_->axes; }
  Box owned(int rank) const { return parts_->owner.owned(rank); }
  /// The smallest box that holds what a rank needs. Halos are spatial: of the channels, it needs those that it owns.
  Box needed(int rank) const;

  /// Returns this halo on another grid with the same axes.
  Halo on(const Grid& grid) const;

  /// Returns the rank's part of the exchange. A message begins and ends with rows that its receiver needs. So a window
  /// whose taps lie farther apart than the rows of a rank takes nothing from the ranks between two taps.
  TransferPlan transfer(int rank) const;
  /// True if no rank needs an element that it does not own.
  bool none() const;
  /// Returns the widest halo on each side of each spatial dimension, e.g. "H 1+1 W 0+2" (below + above); "" if there is
  /// none.
  std::string widths() const;
  /// True for halos of the same layouts along the same axes. It does not compare the windows, which are the same for
  /// equal operators.
  bool operator==(const Halo& other) const {
    return parts_ == other.parts_ || (parts_->owner == other.parts_->owner &&
                                      parts_->consumer == other.parts_->consumer && parts_->axes == other.parts_->axes);
  }

 private:
  struct Parts {
    Layout owner, consumer;
    Reads reads;
    AxisSet axes;  // ranks that differ along other axes exchange nothing
  };
  std::shared_ptr<const Parts> parts_;  // shared by copies
};

/// The halo of x for y = window(x): every rank needs the inputs that its own outputs read. There is one window per
/// spatial dimension.
Halo halo_of_inputs(const Layout& x, const Layout& y, std::span<const Window> windows);

/// The halo of dy for dx: every rank needs the outputs that read its own inputs.
Halo halo_of_outputs(const Layout& x, const Layout& y, std::span<const Window> windows);

}  // namespace partita
