#pragma once

#include "partita/comm/communicator.hpp"
#include "partita/device/device.hpp"

#include <chrono>
#include <memory>
#include <string>

namespace partita {

/// Returns the version of the NCCL library that runs, e.g. "2.28.9"; "" if this build lacks NCCL.
std::string nccl_version();
/// Returns true if this build can use NCCL.
bool have_nccl();

/// Returns true if the NCCL library that runs keeps the order in which the CPU starts messages of several
/// communicators of a rank: since version 2.26. With an older one such messages may wait for each other in a circle.
bool nccl_orders_communicators();

/// Returns a communicator of the ranks of `host` for buffers in the memory of GPUs, one for each rank. Messages and
/// collectives are those of NCCL, which has an order of its own in which it sums. Everything runs on a stream of the
/// communicator and its splits, and the CPU never waits. A thread of the communicator ends the job, by an uncaught
/// DeviceError, if NCCL reports a failure or if, with a `limit`, a message has not arrived in that time.
/// Throws Error if this build lacks NCCL, DeviceError if NCCL cannot start, e.g. because two ranks have one card.
/// Collective: every rank of `host` calls it, and destroys the result, unless it ends by an exception.
/// @pre `host` and `device` outlive the result and its splits.
std::shared_ptr<Communicator> make_nccl(Communicator& host, Device& device, std::chrono::milliseconds limit = {});

}  // namespace partita
