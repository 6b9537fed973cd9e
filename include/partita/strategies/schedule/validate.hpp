#pragma once

#include "partita/strategies/schedule/schedule.hpp"
#include "partita/strategies/schedule/simulate.hpp"

namespace partita {

/// All functions throw Error that names the first wrong action and its stage. The lines after the first show the
/// position of every stage at that time.

/// Checks that every group runs every microbatch once: forward, and in training then either a combined backward or both
/// halves. A group of a replica must run on one stage, and a microbatch on one replica.
void check_complete(const Schedule& schedule, const GroupGraph& graph, bool training);

/// Checks that the lists can run in order: no action comes before one that it needs, on its own stage or on others.
void check_order(const Schedule& schedule, const GroupGraph& graph);

/// Checks that the lists can run without buffered sends: adjacent transfers end together, when each of them has met its
/// counterpart. Transfers between two stages must be received in the order in which they are sent.
void check_rendezvous(const Schedule& schedule, const GroupGraph& graph);

/// Checks that no stage holds more than `limit`.
void check_peak(const Schedule& schedule, const std::vector<GroupMemory>& memory, double limit);

/// Makes all these checks, after adding transfers and updates. `limit` 0 means no limit.
void check_schedule(const Schedule& schedule, const GroupGraph& graph, bool training,
                    const std::vector<GroupMemory>& memory = {}, double limit = 0);

}  // namespace partita
