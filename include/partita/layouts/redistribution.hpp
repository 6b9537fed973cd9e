#pragma once

#include "partita/base/traffic.hpp"
#include "partita/layouts/layout.hpp"
#include "partita/layouts/transfer.hpp"

#include <string>
#include <vector>

namespace partita {

/// One step of a redistribution: `verb` over the ranks of `axes` takes layout `from` to layout `to`.
struct RedistributionStep {
  Verb verb = Verb::none;
  AxisSet axes = 0;
  Layout from, to;
  bool operator==(const RedistributionStep&) const = default;
};

/// Returns what a rank packs in a step that exchanges boxes.
PackedElements packed_elements(const RedistributionStep& step, int rank);

/// Returns true if in an all-gather or a reduce-scatter the blocks of the ranks lie one after the other in the memory
/// of the tensor that has them all, in the order of the ranks. Then nothing is packed.
bool blocks_are_runs(const RedistributionStep& step);
/// Returns how many elements a rank packs, or receives to unpack, in such a step; 0 in steps of other verbs.
Index packed_blocks(const RedistributionStep& step, int rank);

/// Returns the steps, in order, that take a tensor from one layout to another of the same shape and grid. There are
/// none if the layouts are equal. This is a pure function. The steps are:
///
///     partial -> replicate   all_reduce        shard(i) -> shard(j)   exchange (an all-to-all of boxes)
///     partial -> shard       reduce_scatter    replicate -> shard     none (a local slice)
///     shard -> replicate     all_gather        replicate -> partial   none (the first rank of the axis keeps its
///                                                                     value, the others get zero)
///
/// Pending sums are completed first. This takes a reduce-scatter if all axes of the sum then shard one dimension
/// innermost and nothing else changes, and an all-reduce otherwise. If several dimensions still differ after that, one
/// exchange changes them all.
std::vector<RedistributionStep> plan_redistribution(const Layout& from, const Layout& to);

/// Returns what `rank` sends in this step, if an element has `element_size` bytes.
Traffic traffic(const RedistributionStep& step, int rank, Index element_size);

/// Returns what `rank` receives in a step that is an exchange. It does not plan the exchange, but counts blocks in each
/// dimension.
Traffic received(const RedistributionStep& step, int rank, Index element_size);

/// Returns how many elements of its box in `need` a rank lacks if it holds its box in `have`: the maximum over the
/// ranks at the corners of the grid (first or last along each axis). This is the maximum over all ranks if at most one
/// dimension is cut unevenly and, in that dimension, the axes of one layout are the first axes of the other or the
/// layouts share no axis. Otherwise another rank may lack twice as many elements, or more if blocks are empty.
Index most_missing(const Layout& have, const Layout& need);

/// Returns the elements that pass `rank`'s link in this step if its collective runs as a ring. With p ranks and n
/// elements in all, that is n (p-1)/p for all-gather and reduce-scatter and 2n (p-1)/p for all-reduce (Thakur et al.
/// 2005). For an exchange it is most_missing(), whatever the rank.
double wire_elements(const RedistributionStep& step, int rank);
/// Returns the same for an all-reduce of n elements over p ranks.
double wire_of_all_reduce(double n, int p);

/// Returns e.g. "all_gather(y)" or "reduce_scatter(x) exchange"; "" if there are no steps.
std::string print(const std::vector<RedistributionStep>& steps);

}  // namespace partita
