#pragma once

#include "partita/device/device.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// Measures where a rank's time goes. Every moment is charged to one part of one layer. On a device, these are the
/// moments of its stream, not those at which the CPU enqueued the work.
class Profile {
 public:
  enum class Part : std::uint8_t {
    framework,  ///< everything else: walking the plan, managing buffers
    compute,    ///< a layer's kernel, without communication
    exchange,   ///< packing, starting and unpacking communication
    wait,       ///< waiting for communication to complete
  };
  using Seconds = std::array<double, 4>;  ///< seconds, indexed by Part

  /// Measures the calling thread, and a stream to which it adds work, until the object is destroyed. A thread has at
  /// most one profile at a time.
  /// @pre `device` outlives the profile.
  explicit Profile(Device& device = host_device(), Stream stream = {});
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Returns the profile of the calling thread, or null.
  static Profile* current();
  /// Says that the calling thread works on `layer` from now on, and charges its time to it; "" stands for the time
  /// between layers.
  /// @pre The name lives until the next call.
  static void layer(std::string_view layer) {
    current_layer() = layer;
    if (Profile* mine = current()) mine->set_layer(layer);
  }
  /// The layer that the calling thread works on, for messages about a rank that waits.
  static std::string_view& current_layer();
  void set_layer(std::string_view layer);
  /// Charges the time to `part` from now on. Returns the part before.
  Part set_part(Part part);
  /// Returns the seconds of each layer up to now.
  const std::map<std::string, Seconds, std::less<>>& by_layer();
  void reset();

 private:
  /// A moment at which another part or layer begins, and what the time before it is charged to.
  struct Turn {
    Event moment;
    Seconds* layer;
    Part part;
  };
  void charge();
  void read_times();

  Device& device_;
  Stream stream_;
  std::map<std::string, Seconds, std::less<>> seconds_;
  Seconds* layer_;
  Part part_ = Part::framework;
  Event since_;
  std::vector<Turn> turns_;  // of a device, whose times are not known yet
};

/// Charges the time of a scope to `part`, if the calling thread has a profile.
class Timed {
 public:
  explicit Timed(Profile::Part part) : profile_(Profile::current()) {
    if (profile_ != nullptr) before_ = profile_->set_part(part);
  }
  ~Timed() {
    if (profile_ != nullptr) profile_->set_part(before_);
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Profile* profile_;
  Profile::Part before_ = Profile::Part::framework;
};

}  // namespace partita
