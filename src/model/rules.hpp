#pragma once

#include "partita/base/error.hpp"
#include "partita/model/operator.hpp"

#include <string_view>

// What the layout rules of several operators have in common.

namespace partita {

inline constexpr int first_spatial = 2;  // behind N and C

/// Axes over which samples and places of x are cut: over these, ranks contribute differently to sums over N D H W.
inline AxisSet sample_axes(const Layout& x) { return x.sharding() & ~x.sharding('C'); }

inline void refuse_partial(const Layout& output) {
  if (output.partial() != 0)
    fail("output \"{}\" asks for a pending sum over {}, which this layer does not form", output.print(),
         output.grid().print(output.partial()));
}

inline void refuse_channels(const Layout& layout, std::string_view what) {
  if (const AxisSet axes = layout.sharding('C'); axes != 0)
    fail("{} \"{}\" shards dimension C over {}; this layer needs all channels of a sample on a rank: leave C whole",
         what, layout.print(), layout.grid().print(axes));
}

/// The layout in which a layer that keeps samples, places and channels apart runs: the strategy's `input` if there is
/// one, else its output's.
inline Layout basis(const LayoutRequest& request) {
  return request.input[0] ? request.input[0]->with_partial(0) : request.output.onto(request.arriving[0].shape());
}

inline void need_whole_weights(const LayoutRequest& request) {
  if (request.weights && request.weights->sharding() != 0)
    fail("weights \"{}\" shard over {}; this layer needs its weights whole on every rank", request.weights->print(),
         request.weights->grid().print(request.weights->sharding()));
}

}  // namespace partita
