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

  /// While it lives, the rank connects with others, which may never come.
  class Connecting {
   public:
    explicit Connecting(NcclWatch& watch) : watch_(watch) { watch.set_connecting(true); }
    ~Connecting() { watch_.set_connecting(false); }
    Connecting(const Connecting&) = delete;
    Connecting& operator=(const Connecting&) = delete;

   private:
    NcclWatch& watch_;
  };

  void add(NcclLibrary::Comm comm);
  /// Looks no longer after a communicator that is about to end.
  void remove(NcclLibrary::Comm comm);
  /// Remembers a communication, which is complete when `done` has passed. They complete in this order.
  void started(const Event& done);

  enum class Finding : std::uint8_t { fine, lost, failed };
  /// Returns what is wrong, and what NCCL says about it if it has failed.
  std::pair<Finding, std::string> look();

 private:
  void set_connecting(bool connecting);

  NcclLibrary& library_;
  Device& device_;
  bool connecting_ = false;
  std::mutex mutex_;
  std::vector<NcclLibrary::Comm> comms_;
  std::deque<Event> under_way_;
  int looked_ = 0;  // how often the first of them was found under way, or the rank connecting
};

}  // namespace partita
