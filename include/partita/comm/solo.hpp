#pragma once

#include "partita/comm/communicator.hpp"

#include <vector>

namespace partita {

/// From when to when zeros were written in place of what other ranks would have sent, in seconds of the steady clock.
struct StandIn {
  double start = 0, end = 0;
};

/// Rank `rank` of `size`, of which there is no other, so that what one rank computes can be run and timed by itself: every verb
/// returns at once, others have sent zeros, and sums are this rank's own part. What writing these takes is no part of the
/// rank's work: it is added to `log` where there is one, which must outlive the communicator. Its splits have no ranks to ask
/// and are refused.
std::shared_ptr<Communicator> make_solo(int rank, int size, bool asynchronous, std::vector<StandIn>* log = nullptr);

}  // namespace partita
