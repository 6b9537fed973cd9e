#pragma once

#include "partita/base/traffic.hpp"
#include "partita/layouts/layout.hpp"

#include <string>
#include <vector>

namespace partita {

/// One conversion of a redistribution: `verb` over the ranks of `axes` takes layout `from` to layout `to`.
struct RedistributionStep {
  Verb verb = Verb::none;
  AxisSet axes = 0;
  Layout from, to;
};

/// The conversions that take a tensor from one layout to another of the same shape and grid, in order; none if they are
/// equal. Pure. The vocabulary:
///
///     partial -> replicate   all_reduce        shard(i) -> shard(j)   exchange (an all-to-all of boxes)
///     partial -> shard       reduce_scatter    replicate -> shard     none (a local slice)
///     shard -> replicate     all_gather        replicate -> partial   none (the first rank of the axis keeps its
///     value)
///
/// A pending sum is taken first, by a reduce-scatter if the axes of the sum go on to shard one dimension innermost and
/// nothing else changes; what then differs in several ways at once is one exchange.
std::vector<RedistributionStep> plan_redistribution(const Layout& from, const Layout& to);

/// What `rank` sends in these steps, for elements of `element_size` bytes.
Traffic traffic(const RedistributionStep& step, int rank, Index element_size);

/// What `rank` receives in a step that is an exchange, without planning it: in each dimension blocks are counted.
Traffic received(const RedistributionStep& step, int rank, Index element_size);

/// Elements of `need` that a rank lacks which has `have`: the most of those at the grid's corners, the first and the last along each
/// axis. That is the most of all ranks where one dimension at most is cut unevenly, and there by axes of which one layout has the
/// first ones of the other, or none; elsewhere others may lack twice as much, or more where blocks are empty.
Index most_missing(const Layout& have, const Layout& need);

/// Elements that pass `rank`'s link in this step if its collective runs as a ring (p ranks, n elements in all): all-gather
/// and reduce-scatter n (p-1)/p, all-reduce 2n (p-1)/p (Thakur et al. 2005). Of an exchange, whatever the rank, what one at the
/// grid's corners receives at most (most_missing).
double wire_elements(const RedistributionStep& step, int rank);
/// The same for an all-reduce of n elements over p ranks.
double wire_of_all_reduce(double n, int p);

/// e.g. "all_gather(y)", "reduce_scatter(x) exchange"; "" for none.
std::string print(const std::vector<RedistributionStep>& steps);

}  // namespace partita
