#include "src/system/clock.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>

namespace partita {

namespace {

/// Returns the CPU time of the calling thread. Linux excludes the time that the host of a virtual machine gave to
/// others, if the host reports it.
double time_on_core() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The CPU time is read first, so that reading the clocks counts as CPU time but not as elapsed time. So it is not lost.
Stopwatch::Stopwatch() : used_(time_on_core()), start_(now()) {}

Timing Stopwatch::time() const {
  const double seconds = now() - start_;
  const double used = time_on_core() - used_;
  return {seconds, std::max(seconds - used, 0.0)};
}

std::vector<std::size_t> undisturbed(const std::vector<Timing>& timings) {
  constexpr double little = 0.01, shared = 0.2;
  const auto share = [](const Timing& timing) { return timing.seconds > 0 ? timing.lost / timing.seconds : 0; };
  std::vector<double> shares;
  for (const auto& timing : timings) shares.push_back(share(timing));
  std::sort(shares.begin(), shares.end());
  const double quarter = shares.empty() ? 0 : shares[shares.size() / 4];
  const double most = quarter > shared ? 1 : std::max(quarter, little);
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < timings.size(); ++i)
    if (share(timings[i]) <= most) kept.push_back(i);
  return kept;
}

std::vector<double> undisturbed_seconds(const std::vector<Timing>& timings) {
  std::vector<double> seconds;
  for (const std::size_t i : undisturbed(timings)) seconds.push_back(timings[i].seconds);
  return seconds;
}

}  // namespace partita
