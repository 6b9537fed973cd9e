#pragma once

#include "src/comm/textbook/blocks.hpp"

namespace partita::textbook {

/// Sends all blocks around the ring, so that every rank gets all of them. At the start this rank has block `own`, and
/// its left neighbor has block `own` - 1.
void gather_ring(Communicator& comm, const Blocks<std::byte>& all, int own);
/// Gathers the blocks of all places of a fold by recursive doubling, on the ranks that act for the places.
void gather_doubling(Communicator& comm, const Fold& fold, const Blocks<std::byte>& all);

}  // namespace partita::textbook
