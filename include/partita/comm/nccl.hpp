#pragma once

#include "partita/base/device.hpp"
#include "partita/comm/communicator.hpp"

#include <memory>
#include <string>

namespace partita {

/// Returns the version of the NCCL library that runs, e.g. "2.28.9"; "" if this build lacks NCCL.
std::string nccl_version();

/// Returns a communicator of the ranks of `host` for buffers in the memory of GPUs, one for each rank. Messages and
/// collectives are those of NCCL, which has an order of its own in which it sums. Everything runs on a stream of the
/// communicator and its splits, and the CPU never waits. Throws Error, alike on every rank, if this build lacks NCCL or
/// if NCCL cannot start, e.g. because two ranks have one card.
/// Collective: every rank of `host` calls it.
/// @pre `host` and `device` outlive the result and its splits.
std::shared_ptr<Communicator> make_nccl(Communicator& host, Device& device);

}  // namespace partita
