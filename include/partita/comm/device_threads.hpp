#pragma once

#include "partita/base/device.hpp"
#include "partita/comm/communicator.hpp"

#include <memory>

namespace partita {

/// Returns a communicator of the same ranks for buffers in the memory of devices. The ranks are threads of one process,
/// with a device each or one for all. Messages are copies from device to device. They run on a stream of the
/// communicator, as soon as both sides have started the exchange, and nothing makes a device wait but events.
/// Collectives combine in the same order as those of run_threads().
///
/// If a rank fails, by an exception, the others' communication fails too.
/// Collective: every rank of `threads` calls it.
/// @pre `threads` is a communicator of run_threads(), and `device` outlives the result.
std::shared_ptr<Communicator> make_device_threads(Communicator& threads, Device& device);

}  // namespace partita
