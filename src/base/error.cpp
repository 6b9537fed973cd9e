#include "partita/base/error.hpp"

#include "src/base/speaker.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

namespace partita {

namespace {

constexpr int user_error = 2;
std::terminate_handler others = nullptr;  // the handler before ours

/// Ends the process if nobody caught an Error, e.g. one that a user's main() threw. Other exceptions end it as before.
void end_with_message() {
  try {
    if (std::current_exception()) throw;
  } catch (const Error& error) {
    std::fflush(stdout);
    if (speaks_for_job()) {
      fmt::print(stderr, "partita: {}\n", error.what());
      std::fflush(stderr);
      std::this_thread::sleep_for(std::chrono::milliseconds(250));  // the other ranks have this error too
    }
    std::_Exit(user_error);
  } catch (...) {
  }
  if (others != nullptr) others();
  std::abort();
}

const bool installed = (others = std::set_terminate(end_with_message), true);

}  // namespace

Error::Error(std::string text)
    : std::runtime_error([&] {
        for (std::size_t at = 0; (at = text.find('\0', at)) != std::string::npos;) text.replace(at, 1, "\\u0000");
        return std::move(text);
      }()) {}

void broken(std::string_view what, Where where) {
  fmt::print(stderr, "partita: internal error: {} ({}:{}, in {})\n", what, where.file, where.line, where.function);
  std::fflush(stderr);
  std::abort();
}

namespace {

/// How many letters to insert, delete or replace, or neighbors to swap, make `b` of `a` (Damerau 1964, by the usual
/// recurrence over a table of the beginnings of both).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> of(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  std::iota(of[0].begin(), of[0].end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    of[i][0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = of[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      of[i][j] = std::min({of[i - 1][j] + 1, of[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        of[i][j] = std::min(of[i][j], of[i - 2][j - 2] + 1);
    }
  }
  return of[a.size()][b.size()];
}

}  // namespace

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::string* best = nullptr;
  const std::size_t letters = word.size() - std::min(word.find_first_not_of('-'), word.size());
  std::size_t best_distance = letters / 3 + 2;  // a candidate that is farther away is another word, not a typo
  for (const auto& candidate : candidates) {
    const auto distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = &candidate;
    }
  }
  return best == nullptr ? "" : fmt::format(" (did you mean '{}'?)", *best);
}

std::string counted(std::int64_t count, std::string_view noun, std::string_view ending) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : ending);
}

std::string quoted_list(std::span<const std::string> items) {
  std::string text;
  for (const auto& item : items) text += fmt::format("{}'{}'", text.empty() ? "" : ", ", item);
  return text;
}

}  // namespace partita
