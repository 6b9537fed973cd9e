#pragma once

#include "partita/base/error.hpp"
#include "partita/model/operator.hpp"

#include <string_view>

// Helpers that the layout rules of several operators share.

namespace partita {

inline constexpr int first_spatial = 2;  // dimensions N and C come first

/// Axes that shard the samples or spatial dimensions of x: over these, ranks contribute different parts to sums over N
/// D H W.
inline AxisSet sample_axes(const Layout& x) { return x.sharding() & ~x.sharding('C'); }

inline void refuse_partial(const Layout& output) {
  if (output.partial() != 0)
    fail("output \"{}\" asks for a pending sum over {}, which this layer cannot produce", output.print(),
         output.grid().print(output.partial()));
}

/// The output of a layer whose table is cut over the axes `rows`, without its pending sum over these and without what
/// they cut of it. Throws Error if it asks for another sum.
inline Layout without_axes(const Layout& output, AxisSet rows) {
  if ((output.partial() & ~rows) != 0) refuse_partial(output);
  Layout y = output.with_partial(0);
  for (int d = 0; d < y.shape().dims(); ++d) {
    AxisList kept;
    for (const int axis : y.axes(d))
      if ((AxisSet{1} << axis & rows) == 0) kept.push_back(axis);
    y = y.with(d, kept);
  }
  return y;
}

inline void refuse_channels(const Layout& layout, std::string_view what) {
  if (const AxisSet axes = layout.sharding('C'); axes != 0)
    fail("{} \"{}\" shards dimension C over {}; this layer needs all channels of a sample on one rank: leave C whole",
         what, layout.print(), layout.grid().print(axes));
}

/// The layout in which a layer runs that treats samples, spatial positions and channels independently: the strategy's
/// `input` if given, else the output's. A pending sum that is asked of the output is none of it.
inline Layout basis(const LayoutRequest& request) {
  return (request.input[0] ? *request.input[0] : request.output.onto(request.arriving[0].shape())).with_partial(0);
}

/// True if every rank has whole pieces of channels, the same of x as of y: `of_x` channels of x, `of_y` of y.
inline bool keeps_pieces(const Layout& x, Index of_x, const Layout& y, Index of_y) {
  const int c = x.shape().find('C');
  for (int rank = 0; rank < x.grid().size(); ++rank) {
    const Interval mine = x.owned(rank)[c], made = y.owned(rank)[c];
    if (mine.lo % of_x != 0 || mine.hi % of_x != 0) return false;
    if (mine.extent() / of_x * of_y != made.extent()) return false;
    if (mine.extent() > 0 && mine.lo / of_x * of_y != made.lo) return false;
  }
  return true;
}

/// y with as many channels as `features`.
inline Shape with_channels(const Shape& x, Index features) {
  Shape y;
  for (int d = 0; d < x.dims(); ++d) y.push_back({x.name(d), x.name(d) == 'C' ? features : x.extent(d)});
  return y;
}

/// Layouts in which each rank computes its channels of y from its channels of x, which are whole pieces. Where `x` cuts
/// pieces, the channels are whole on every rank.
inline OperatorLayouts by_pieces(Layout x, const Shape& output, Index of_x, Index of_y) {
  if (!keeps_pieces(x, of_x, x.onto(output), of_y)) x = x.with(x.shape().find('C'), {});
  return {.x = {x}, .y = x.onto(output), .dx = {x}};
}

/// Throws Error unless x is a sequence.
inline void check_places(const Shape& x, std::string_view what) {
  if (!x.has('L')) fail("its input {} is no sequence; {} needs places, the dimension L", x.print(), what);
}

inline void need_whole_weights(const LayoutRequest& request) {
  if (request.weights && request.weights->sharding() != 0)
    fail("weights \"{}\" are sharded over {}; this layer needs its weights whole on every rank",
         request.weights->print(), request.weights->grid().print(request.weights->sharding()));
}

}  // namespace partita
