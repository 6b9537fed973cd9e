#pragma once

#include "src/cli/options/options.hpp"

#include <string>
#include <vector>

namespace partita::cli {

struct CompareOptions : Options {
  bool measure = false;            ///< also run the strategies
  std::vector<std::string> grids;  ///< grids or, with rank_counts, patterns such as "data={}"
  std::vector<int> rank_counts;    ///< numbers of ranks for which curves are predicted, ascending
  bool weak = false;               ///< in curves, the batch grows with the number of ranks
  std::string csv;                 ///< file for the points of curves; "" for none
};

}  // namespace partita::cli
