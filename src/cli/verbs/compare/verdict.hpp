#pragma once

#include "src/cli/output/compared.hpp"

#include <string>
#include <vector>

namespace partita::cli {

/// Returns a line for each strategy that does not fit, with what would make it fit.
std::string print_unfit(const std::vector<Compared>& all, Index limit);

/// Which strategies of those that fit are fastest.
struct Fastest {
  std::vector<std::string> names;  ///< one, or several that are predicted to take the same time
  bool measured = false;           ///< true: the shortest measured time; false: nothing was measured
};

/// Returns the fastest strategies. As soon as one strategy was measured, only measured ones can be fastest, however
/// fast the others are predicted to be.
Fastest fastest(const std::vector<Compared>& all);

/// Returns the verdict in words: the fastest strategy and how much longer the others take. After a measurement it also
/// says where the prediction disagreed. "" for a single strategy, or if none fits.
std::string print_verdict(const std::vector<Compared>& all);

/// Returns what makes numbers doubtful: measured times that spread by more than 10 %, and an efficiency above 105 %,
/// measured or predicted.
std::vector<std::string> warnings(const std::vector<Compared>& all);

}  // namespace partita::cli
