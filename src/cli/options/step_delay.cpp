#include "src/cli/options/step_delay.hpp"

#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "src/base/plain_text.hpp"

#include <array>
#include <string_view>
#include <utility>

namespace partita::cli {

namespace {

/// Returns the seconds of "20ms"; nullopt if it is no time from 1 us to 1 hour.
std::optional<double> read_seconds(std::string_view text) {
  constexpr double least = 1e-6, most = 3600;
  for (const auto& [unit, seconds] : {std::pair("us", 1e-6), std::pair("ms", 1e-3), std::pair("s", 1.)}) {
    if (!text.ends_with(unit)) continue;
    const auto number = parse_number<double>(text.substr(0, text.size() - std::string_view(unit).size()));
    if (!number) continue;  // "20ms" also ends with "s"
    const double value = *number * seconds;
    return value >= least && value <= most ? std::optional(value) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

StepDelay parse_delay(const std::string& text) {
  const auto colon = text.find(':');
  const std::string_view all = text, who = all.substr(0, colon);
  constexpr std::string_view rank_is = "rank=";
  StepDelay delay;
  if (who.starts_with(rank_is)) delay.rank = parse_number<int>(who.substr(rank_is.size()));
  if (colon == std::string::npos || (delay.rank ? *delay.rank < 0 : who != "random"))
    fail("write rank=R:TIME or random:TIME, e.g. rank=3:20ms");
  const auto seconds = read_seconds(all.substr(colon + 1));
  if (!seconds) fail("the time must be 1us to 3600s, e.g. 500us, 20ms or 1.5s");
  delay.seconds = *seconds;
  return delay;
}

double delay_seconds(std::span<const StepDelay> delays, std::uint64_t seed, int rank, Index step) {
  double all = 0;
  for (std::size_t i = 0; i < delays.size(); ++i) {
    const StepDelay& delay = delays[i];
    if (delay.rank) {
      if (*delay.rank == rank) all += delay.seconds;
      continue;
    }
    const Random random(seed, hash_text(fmt::format("delay {}", i)), static_cast<std::uint64_t>(step));
    all += random.uniform(rank) * delay.seconds;
  }
  return all;
}

}  // namespace partita::cli
