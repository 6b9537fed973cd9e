#include "partita/base/error.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace partita {

void broken(std::string_view what, Where where) {
  fmt::print(stderr, "partita: internal error: {} ({}:{}, in {})\n", what, where.file, where.line, where.function);
  std::fflush(stderr);
  std::abort();
}

namespace {

/// Levenshtein distance by the usual two-row recurrence.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::string* best = nullptr;
  std::size_t best_distance = word.size() / 2 + 2;  // a candidate that is farther away is another word, not a typo
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
