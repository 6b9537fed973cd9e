#pragma once

#include "partita/comm/communicator.hpp"
#include "partita/device/device.hpp"

#include <memory>

namespace partita {

/// Bytes of a message that travel at once between devices, through the memory of the CPU.
constexpr Index staged_piece = Index{4} << 20;

/// Returns a communicator of the ranks of `host` for buffers in the memory of devices, one device per rank. Messages
/// pass through the memory of the CPU (Device::staging) and travel as those of `host`, e.g. by MPI. Long messages of
/// exchanges travel in pieces of `piece` bytes, the same on every rank: one piece is copied while another is sent. The
/// CPU waits for the device whenever a communication starts, so this is the slowest way, and the one that works
/// everywhere. Collectives combine in the order of `host`.
/// @pre `host` and `device` outlive the result and its splits.
std::shared_ptr<Communicator> make_staged(Communicator& host, Device& device, Index piece = staged_piece);

}  // namespace partita
