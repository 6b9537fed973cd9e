#include "src/comm/job/patience.hpp"

#include "src/device/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace partita {

void print_waiting(int rank, int seconds, const std::vector<int>& missing) {
  constexpr std::size_t most = 8;
  std::string names;
  for (std::size_t i = 0; i < std::min(most, missing.size()); ++i)
    names += fmt::format("{}{}", i == 0 ? "" : ", ", missing[i]);
  if (missing.size() > most) names += fmt::format(" and {} more", missing.size() - most);
  const std::string_view layer = Profile::current_layer();
  fmt::print(stderr, "note: rank {} has waited {} s for {}{}; it goes on waiting\n", rank, seconds,
             missing.empty() ? "other ranks" : fmt::format("rank{} {}", missing.size() == 1 ? "" : "s", names),
             layer.empty() ? "" : fmt::format(" at layer '{}'", layer));
}

void Patience::begin() {
  last_ = std::chrono::steady_clock::now();
  waited_ = {};
  noted_ = false;
}

void Patience::look(const std::function<std::vector<int>()>& missing) {
  using std::chrono::seconds;
  constexpr std::chrono::nanoseconds most = std::chrono::milliseconds(100);  // a longer gap: the process was suspended
  const auto now = std::chrono::steady_clock::now();
  waited_ += std::min<std::chrono::nanoseconds>(now - last_, most);
  last_ = now;
  if (limits_.most > 0 && waited_ >= seconds(limits_.most))
    throw WaitedTooLong(fmt::format("rank {} {}; the job ends", rank_, fmt::format(waited_too_long, limits_.most)));
  if (limits_.note == 0 || noted_ || waited_ < seconds(limits_.note)) return;
  noted_ = true;
  print_waiting(rank_, limits_.note, missing());
}

}  // namespace partita
