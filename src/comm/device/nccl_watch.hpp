#pragma once

#include "partita/device/device.hpp"
#include "src/comm/device/nccl_library.hpp"

#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace partita {

/// Looks after the communicators of one rank: NCCL reports failures of other ranks only to those who ask, and waits
/// forever for a rank that has died. May be called by several threads.
class NcclWatch {
 public:
  /// A message that has not arrived after this many looks counts as lost. Looks are counted, not seconds, so that a job
  /// that was suspended does not fail.
  static constexpr int patience = 20;

  NcclWatch(NcclLibrary& library, Device& device) : library_(library), device_(device) {}

  void add(NcclLibrary::Comm comm);
  /// Ends a communicator.
  void end(NcclLibrary::Comm comm);
  /// Remembers a communication, which is complete when `done` has passed. They complete in this order.
  void started(const Event& done);

  enum class Finding : std::uint8_t { fine, lost, failed };
  /// Returns what is wrong, and what NCCL says about it if it has failed.
  std::pair<Finding, std::string> look();

 private:
  NcclLibrary& library_;
  Device& device_;
  std::mutex mutex_;
  std::vector<NcclLibrary::Comm> comms_;
  std::deque<Event> under_way_;
  int looked_ = 0;  // how often the first of them was found under way
};

}  // namespace partita
