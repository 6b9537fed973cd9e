#pragma once

#include "partita/strategies/plan/plan.hpp"

#include <optional>

namespace partita {

/// Returns the axes over which a layer gathers its weights before each use, of those that cut its first weight in the
/// layout `asked` of a rule: the axes that cut samples or space of its output. Along these its kernels need the whole
/// weight, and each rank adds a part of its gradient. Others cut the layer's work:
///
///   - axes that cut channels of the output, or of the input if a rule names it or the layer multiplies its channels;
///   - for embeddings and tables those that cut places, and for tables all: there the rows are cut, and sums of the
///     vectors follow;
///   - for a linear layer all, if the rule names an algorithm or if they cut its inputs (C D H W): then its products
///     send the weights in panels;
///   - for linear layers and embeddings those with other axes behind them.
AxisSet gathered_axes(const Operator& op, const LayoutRequest& request, const Layout& asked);

/// Returns a layout without some of its axes. Throws Error if one of them has others behind it: at rest, each rank has
/// a part of the block that it needs.
Layout without_gathered(const Layout& asked, AxisSet gathered);

/// Returns the layout of a layer's first weight at rest where the strategy shards all weights: `w`, cut further in its
/// slowest dimension over all axes that could be gathered and that do not cut it yet.
Layout fully_sharded(const Operator& op, const LayoutRequest& request, const Layout& w);

/// Sets LayerBinding::rest of a layer whose other layouts are known. `first`: its first weight at rest, which is at.w
/// or cut further; other trained weights are cut further in the same dimensions, as far as they have them.
void rest_weights(LayerBinding& layer, const Layout& first, bool training);

}  // namespace partita
