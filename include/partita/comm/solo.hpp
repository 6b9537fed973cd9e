#pragma once

#include "partita/comm/communicator.hpp"

#include <vector>

namespace partita {

/// An interval in which zeros were written in place of data from other ranks: moments of Device::mark.
struct StandIn {
  Event start, end;
};

/// Returns a communicator for rank `rank` of `size`, without the other ranks. With it, the computation of one rank can
/// run and be timed alone. Every operation returns at once, data from other ranks are zeros, and a sum is this rank's
/// own contribution. The time that writing this data takes is not work of the rank: its interval is appended to `log`,
/// if given. The communicator cannot be split.
/// @pre `log` and `device`, where the buffers lie, outlive the communicator.
std::shared_ptr<Communicator> make_solo(int rank, int size, bool asynchronous, std::vector<StandIn>* log = nullptr,
                                        Device& device = host_device());

}  // namespace partita
