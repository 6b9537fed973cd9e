#pragma once

#include "partita/strategies/schedule/schedule.hpp"
#include "partita/strategies/schedule/simulate.hpp"

namespace partita {

/// All functions throw Error that names the first wrong action and its stage; the lines after the first draw where
/// every stage then stands.

/// Every group runs every microbatch once: forward, then either a combined backward or the two halves (training), on one
/// stage a replica, a microbatch on one replica.
void check_complete(const Schedule& schedule, const GroupGraph& graph, bool training);

/// The lists can be worked off in order: nothing comes before what it needs, on its own stage or over several.
void check_order(const Schedule& schedule, const GroupGraph& graph);

/// They can if sends are not buffered: a group of adjacent transfers ends when each of them has met its other end. Between
/// two stages transfers are received in the order in which they are sent.
void check_rendezvous(const Schedule& schedule, const GroupGraph& graph);

/// No stage holds more than `limit`.
void check_peak(const Schedule& schedule, const std::vector<GroupMemory>& memory, double limit);

/// All of these, with transfers and updates added; `limit` 0 is none.
void check_schedule(const Schedule& schedule, const GroupGraph& graph, bool training,
                    const std::vector<GroupMemory>& memory = {}, double limit = 0);

}  // namespace partita
