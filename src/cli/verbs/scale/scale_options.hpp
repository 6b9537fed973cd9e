#pragma once

#include "src/cli/support/options.hpp"

#include <string>
#include <vector>

namespace partita::cli {

/// What `scale` is asked for.
struct ScaleOptions {
  std::vector<int> ranks;               ///< ascending
  std::vector<std::string> strategies;  ///< files
  std::vector<std::string> grids;       ///< e.g. "data={} y=2", where {} stands for the ranks that are left
  bool weak = false;                    ///< the batch grows with the ranks
  Index batch = 0;                      ///< of all ranks, or of each in weak scaling
  int repeats = 5;                      ///< runs of every strategy on every number of ranks
  Index steps = 20;                     ///< of a run that count
  std::vector<std::string> launcher;    ///< the program that starts ranks, with its options
  std::string out, csv;
  std::string machine;                 ///< a file whose costs are set beside what is measured; "" for none
  std::vector<std::string> arguments;  ///< of every run, beside what is above
  Options train;                       ///< what these arguments mean
};

/// Reads the command line: what is not of scale itself is train's. Returns nothing if it asked for help, which is then in
/// `answer`. Throws Error, before anything was run, for what cannot be read or run.
std::optional<ScaleOptions> parse_scale_options(int argc, char** argv, bool builtin, std::string& answer);

/// One run: a strategy on a number of ranks.
struct ScaleCase {
  std::string name;  ///< of the strategy, alike for all its rank counts
  int ranks = 1;
  std::vector<std::string> arguments;  ///< that name the strategy to train
  Strategy strategy;
};

/// Every strategy on every number of ranks that it fits; where one fits none, `notes` says so. A strategy whose grid is
/// fixed is held against the serial program, if 1 is among the ranks. Throws Error if none fits any.
std::vector<ScaleCase> scale_cases(const ScaleOptions& options, std::vector<std::string>& notes);

}  // namespace partita::cli
