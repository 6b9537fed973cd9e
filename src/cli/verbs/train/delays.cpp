#include "src/cli/verbs/train/delays.hpp"

#include "partita/base/error.hpp"
#include "src/cli/options/step_delay.hpp"
#include "src/cli/verbs/train/profile.hpp"
#include "src/device/profile.hpp"
#include "src/system/clock.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

namespace partita::cli {

void check_delays(const TrainOptions& options, int ranks) {
  double longest = 0;
  for (const StepDelay& delay : options.delays) {
    if (delay.rank && *delay.rank >= ranks)
      fail("--delay rank={}: there is no such rank; there are {}, counted from 0", *delay.rank, counted(ranks, "rank"));
    longest += delay.seconds;
  }
  if (options.timeout > 0 && longest >= options.timeout)
    fail("--delay: a rank may be delayed for {:g} s in a step, but others wait for {} s at most; raise --timeout",
         longest, options.timeout);
}

void Delays::wait(Index step) {
  const double seconds = delay_seconds(options_.delays, options_.trainer.seed, rank_, step);
  if (seconds <= 0) return;
  Profile::layer(delay_layer);
  const double start = now();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  all_.push_back({start, now()});
  Profile::layer("");
}

std::vector<double> Delays::seconds_of_ranks(Communicator& world) const {
  if (options_.delays.empty()) return {};
  double mine = 0;
  for (const auto& [start, end] : all_) mine += end - start;
  return gather_numbers(world, mine);
}

std::string print_delays(const std::vector<double>& seconds, Index steps) {
  constexpr std::size_t shown = 8;
  std::vector<std::size_t> ranks(seconds.size());
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  std::stable_sort(ranks.begin(), ranks.end(), [&](auto a, auto b) { return seconds[a] > seconds[b]; });
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < shown && seconds[ranks[i]] > 0; ++i)
    text += fmt::format("{}rank {}: {:.3f} ms a step", text.empty() ? "" : ", ", ranks[i],
                        1e3 * seconds[ranks[i]] / static_cast<double>(std::max<Index>(steps, 1)));
  return text;
}

}  // namespace partita::cli
