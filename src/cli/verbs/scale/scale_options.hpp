#pragma once

#include "src/cli/inputs/rank_patterns.hpp"
#include "src/cli/options/train_options.hpp"

#include <string>
#include <vector>

namespace partita::cli {

/// Steps at the beginning of each run that are not timed: they are slower, because caches fill and connections are
/// opened.
inline constexpr Index uncounted_steps = 3;

/// The options of `scale`.
struct ScaleOptions {
  std::vector<int> ranks;               ///< ascending
  std::vector<std::string> strategies;  ///< files
  std::vector<std::string> grids;       ///< e.g. "data={} y=2"; {} stands for the remaining ranks
  bool weak = false;                    ///< the batch grows with the number of ranks
  Index batch = 0;                      ///< samples per step over all ranks; per rank in weak scaling
  int repeats = 5;                      ///< runs of every strategy on every number of ranks
  Index steps = 20;                     ///< timed steps in each run
  std::string hostfile;                 ///< file with hosts; "" for none
  std::vector<std::string> launcher;    ///< the program that starts ranks, with its options
  std::string out, csv;                 ///< files to write; "" for none
  bool slurm = false;                   ///< submit the runs as jobs of Slurm
  bool dry_run = false;                 ///< with slurm: only print what would be submitted
  bool resubmit = false;                ///< with slurm: submit only what failed or is missing
  bool collect = false;                 ///< gather the results of such jobs
  int ranks_per_node = 0;               ///< with slurm; 0: Slurm decides
  std::vector<std::string> sbatch;      ///< with slurm: more options of sbatch
  std::string machine;                  ///< machine file for predicted times; "" for none
  std::vector<std::string> arguments;   ///< options of `train` that every run gets
  TrainOptions train;                   ///< the same options, parsed

  void add_to(boost::program_options::options_description& all);
  /// Checks all options, also those of `train`, before any run.
  void check(const Program& program, const CommandLine& line);
  /// True if other processes do the runs, as jobs of Slurm.
  bool by_slurm() const { return slurm || collect; }

 private:
  std::string launcher_text_, sbatch_text_;
};

/// Returns every strategy on every number of ranks that its grid allows. Appends to `notes` the strategies that fit no
/// number of ranks. If a strategy has a fixed grid of several ranks and 1 is among the numbers of ranks, adds a run of
/// the serial program for comparison. Throws Error if no strategy fits any number.
std::vector<RankCase> scale_cases(const ScaleOptions& options, std::vector<std::string>& notes);

}  // namespace partita::cli
