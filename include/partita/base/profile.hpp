#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace partita {

/// Where a rank's time goes, by layer: every moment belongs to one part of one layer.
class Profile {
 public:
  enum class Part : std::uint8_t {
    framework,  ///< all that is none of the others: walking the plan, buffers
    compute,    ///< in a layer's kernel, communication aside
    exchange,   ///< packing, starting and unpacking communication
    wait,       ///< for it to arrive
  };
  using Seconds = std::array<double, 4>;  ///< by Part

  /// Counts what this thread does from here on, until it is destroyed; one a thread at a time.
  Profile();
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// This thread's, or null.
  static Profile* current();
  /// From here on this thread's time belongs to `layer` ("" for what is between the layers), if it has a profile.
  static void layer(std::string_view layer) {
    if (Profile* mine = current()) mine->set_layer(layer);
  }
  void set_layer(std::string_view layer);
  /// From here on it belongs to `part`; returns the one before.
  Part set_part(Part part);
  /// All so far, up to now.
  const std::map<std::string, Seconds, std::less<>>& by_layer();
  void reset();

 private:
  void charge();

  std::map<std::string, Seconds, std::less<>> seconds_;
  Seconds* layer_;
  Part part_ = Part::framework;
  std::chrono::steady_clock::time_point since_;
};

/// Counts a scope as `part` if this thread has a profile.
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
