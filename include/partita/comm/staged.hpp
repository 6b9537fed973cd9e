#pragma once

#include "partita/base/device.hpp"
#include "partita/comm/communicator.hpp"

#include <memory>

namespace partita {

/// Returns a communicator of the ranks of `host` for buffers in the memory of devices, one device per rank. Messages
/// pass through the memory of the CPU (Device::staging) and travel as those of `host`, e.g. by MPI. The CPU waits for
/// the device whenever a communication starts, so this is the slowest way, and the one that works everywhere.
/// Collectives combine in the order of `host`.
/// @pre `host` and `device` outlive the result and its splits.
std::shared_ptr<Communicator> make_staged(Communicator& host, Device& device);

}  // namespace partita
