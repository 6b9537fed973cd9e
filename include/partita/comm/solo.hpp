#pragma once

#include "partita/comm/communicator.hpp"

namespace partita {

/// Rank `rank` of `size`, of which there is no other: every verb returns at once and moves nothing, so that what one rank
/// computes can be run and timed by itself. Its splits have no ranks to ask and are refused.
std::shared_ptr<Communicator> make_solo(int rank, int size, bool asynchronous);

}  // namespace partita
