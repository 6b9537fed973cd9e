#pragma once

#include "partita/comm/communicator.hpp"
#include "partita/device/device.hpp"

#include <chrono>
#include <memory>

namespace partita {

constexpr Index device_threads_room = Index{16} << 20;

/// Returns a communicator of the same ranks for buffers in the memory of devices. The ranks are threads of one process,
/// with a device each or one for all. Messages are copies from device to device. They run on a stream of the
/// communicator, as soon as both sides have started the exchange, and nothing makes a device wait but events.
/// Collectives combine in the same order as those of run_threads(). Only an all-reduce of 256 KiB or more, on more than
/// two ranks, adds in the order of the ranks. A rank holds `room` bytes of its device for values that arrive to be
/// added; longer sums are formed in pieces.
///
/// If a rank fails, by an exception, the others' communication fails too. With a `limit`, it also fails if a rank has
/// not started its side of a message in that time.
/// Collective: every rank of `threads` calls it.
/// @pre `threads` is a communicator of run_threads() or run_thread_ranks(). It and `device` outlive the result and its
/// splits.
std::shared_ptr<Communicator> make_device_threads(Communicator& threads, Device& device,
                                                  std::chrono::milliseconds limit = {},
                                                  Index room = device_threads_room);

}  // namespace partita
