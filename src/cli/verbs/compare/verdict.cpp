#include "src/cli/verbs/compare/verdict.hpp"

#include "src/cli/output/compared.hpp"
#include "src/cli/output/memory_fit.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace partita::cli {

namespace {

constexpr double tie = 5e-4;          // a smaller difference would be printed as 0.0 %
constexpr double most_spread = 0.10;  // of measured times that can be trusted
constexpr double most_efficiency = 1.05;

double predicted_seconds(const Compared& one) { return one.cost.seconds; }
double measured_seconds(const Compared& one) { return one.measured->median; }

/// The parts of a step that make `loser` slower, largest first, and the parts where it is faster: "halo +2.100 ms,
/// compute -0.200 ms". Parts below 5 % of the difference are left out.
std::string reasons(const Compared& loser, const Compared& winner) {
  auto parts = named_parts(loser.cost.parts);
  const auto won = named_parts(winner.cost.parts);
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].second -= won[i].second;
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  const double difference = loser.cost.seconds - winner.cost.seconds;
  for (const auto& [part, seconds] : parts)
    if (std::abs(seconds) > 0.05 * difference)
      text += fmt::format("{}{} {:+.3f} ms", text.empty() ? "" : ", ", part, seconds * ms);
  return text;
}

/// The strategies that fit and were measured, or all that fit if none was; fastest first.
std::vector<Compared> ranked(std::vector<Compared> all) {
  std::erase_if(all, [](const Compared& one) { return !one.fits(); });
  const bool ran = std::any_of(all.begin(), all.end(), [](const Compared& one) { return one.measured.has_value(); });
  if (ran) std::erase_if(all, [](const Compared& one) { return !one.measured; });
  std::stable_sort(all.begin(), all.end(), [ran](const auto& a, const auto& b) {
    return ran ? measured_seconds(a) < measured_seconds(b) : predicted_seconds(a) < predicted_seconds(b);
  });
  return all;
}

std::string print_predicted(const std::vector<Compared>& sorted) {
  const Compared& winner = sorted.front();
  const auto names = fastest(sorted).names;
  std::string text =
      fmt::format("{} {}\n", fmt::join(names, " and "), names.size() == 1 ? "wins" : "take the same time");
  for (auto one = sorted.begin() + static_cast<std::ptrdiff_t>(names.size()); one != sorted.end(); ++one) {
    const auto why = reasons(*one, winner);
    text += fmt::format("  {} takes {:.1f} % longer{}{}\n", one->name,
                        100 * (predicted_seconds(*one) / predicted_seconds(winner) - 1), why.empty() ? "" : ": ", why);
  }
  return text;
}

std::string print_measured(const std::vector<Compared>& sorted) {
  const Compared& winner = sorted.front();
  std::string text = fmt::format("{} wins: measured {:.3f} ms\n", winner.name, measured_seconds(winner) * ms);
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    const Compared& one = sorted[i];
    const double longer = measured_seconds(one) / measured_seconds(winner) - 1,
                 expected = predicted_seconds(one) / predicted_seconds(winner) - 1;
    const double spread = std::max(one.measured->spread, winner.measured->spread);
    text += fmt::format("  {} takes {:.1f} % longer{}; predicted: {:.1f} % {}{}\n", one.name, 100 * longer,
                        longer < spread ? ", which is within the spread" : "", 100 * std::abs(expected),
                        expected < 0 ? "shorter" : "longer", expected < -tie ? ", so the prediction disagrees" : "");
  }
  return text;
}

}  // namespace

std::string print_unfit(const std::vector<Compared>& all, Index limit) {
  constexpr std::size_t most = 4;
  std::string text;
  for (const auto& one : all)
    if (!one.fits())
      text += fmt::format("{} does not fit: {}\n  {}\n", one.name, print(one.held, limit),
                          print(one.remedies, most, "\n    ", "\n    "));
  return text;
}

Fastest fastest(const std::vector<Compared>& all) {
  const std::vector<Compared> sorted = ranked(all);
  Fastest result;
  if (sorted.empty()) return result;
  result.measured = sorted.front().measured.has_value();
  result.names.push_back(sorted.front().name);
  for (std::size_t i = 1; i < sorted.size() && !result.measured; ++i)
    if (predicted_seconds(sorted[i]) < (1 + tie) * predicted_seconds(sorted.front()))
      result.names.push_back(sorted[i].name);
  return result;
}

std::string print_verdict(const std::vector<Compared>& all) {
  const std::vector<Compared> sorted = ranked(all);
  if (all.size() == 1 || sorted.empty()) return "";
  if (!sorted.front().measured) return print_predicted(sorted);
  std::string text = print_measured(sorted);
  for (const auto& one : all)
    if (one.fits() && !one.measured && predicted_seconds(one) < predicted_seconds(sorted.front()))
      text += fmt::format("  {} was not run; it is predicted to be faster: {:.3f} ms\n", one.name,
                          predicted_seconds(one) * ms);
  return text;
}

std::vector<std::string> warnings(const std::vector<Compared>& all) {
  std::vector<std::string> texts;
  for (const auto& one : all) {
    if (!one.measured) {
      if (one.efficiency > most_efficiency)
        texts.push_back(
            fmt::format("the predicted efficiency of {} is {:.0f} %, above 105 %: the smaller work of its ranks runs "
                        "at better rates than the work of one rank, in the machine's curves or in its measured kernel "
                        "times",
                        one.name, 100 * one.efficiency));
      continue;
    }
    if (one.measured->spread > most_spread)
      texts.push_back(fmt::format(
          "the measured times of {} spread by {:.1f} %; end other programs on this machine and measure again", one.name,
          100 * one.measured->spread));
    if (one.efficiency > most_efficiency)
      texts.push_back(
          fmt::format("the efficiency of {} is {:.0f} %, above 105 %: the predicted time of one rank, against which it "
                      "is computed, is probably too long; measure one rank: compare --measure --ranks 1",
                      one.name, 100 * one.efficiency));
  }
  return texts;
}

}  // namespace partita::cli
