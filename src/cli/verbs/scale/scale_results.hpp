#pragma once

#include "partita/base/types.hpp"
#include "src/cli/output/conditions.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace partita::cli {

/// One strategy on one number of ranks, with the measurements so far.
struct ScaleRun {
  std::string strategy;     ///< name on the command line, the same for all its rank counts
  std::string fingerprint;  ///< hash of the strategy's text, to notice that a file has changed
  int ranks = 1;
  Index batch = 0;                  ///< samples per step, over all ranks
  std::vector<double> repeats;      ///< median seconds per step of each run
  std::optional<double> predicted;  ///< seconds per step
  int status = 0;                   ///< exit status of the last run; 0 if it succeeded
  std::string message;              ///< what the last run printed, if it failed

  /// Median of the repeats. @pre There is at least one.
  double seconds() const;
  /// Distance between the quartiles of the repeats, divided by the median.
  double spread() const;
  double images_per_second() const { return static_cast<double>(batch) / seconds(); }
};

/// A scaling experiment: what all runs have in common, and the runs.
struct ScaleResults {
  std::string model;
  bool weak = false;  ///< the batch grows with the number of ranks
  Index batch = 0;    ///< samples per step over all ranks; per rank in weak scaling
  Index steps = 0;    ///< timed steps in each run
  std::string dtype;
  std::string arguments;  ///< the other options of every run
  std::string launcher;   ///< the program that starts ranks, with its options
  Conditions conditions;
  int threads = 1;  ///< threads per rank
  int repeats = 0;  ///< runs per strategy and number of ranks that the user asked for
  std::vector<ScaleRun> runs;

  /// Returns the run of the strategy and the number of ranks of `wanted`. If there is none, inserts `wanted` next to
  /// the other runs of its strategy, in order of ranks.
  ScaleRun& run(const ScaleRun& wanted);
  /// Images per second, divided by those of the same strategy on its fewest ranks. If the strategy ran on one number of
  /// ranks only, divided by those of the serial program, if that ran.
  double speed_up(const ScaleRun& run) const;
  /// Speed-up divided by the increase of the number of ranks.
  double efficiency(const ScaleRun& run) const;
  /// Images per second and rank, divided by those of the fastest strategy on one rank. Nothing if none ran on one rank.
  std::optional<double> against_serial(const ScaleRun& run) const;

  std::string json() const;   ///< the file that --out names
  std::string csv() const;    ///< the file that --csv names
  std::string table() const;  ///< the table on the terminal

  /// Reads a file that json() wrote. Throws Error, which begins with `option` and the path, for any other file.
  static ScaleResults load(const char* option, const std::string& path);
  /// Says why runs of the experiment `here` cannot be added to these runs, e.g. "its batch is '64', here '128'".
  /// Returns "" if they can.
  std::string difference(const ScaleResults& here) const;

 private:
  /// The run to which speed_up() compares.
  const ScaleRun& base(const ScaleRun& run) const;
};

/// The median; of an even number of values, the mean of the two in the middle.
double median(std::vector<double> values);

/// The name of the run on one rank without a strategy.
inline constexpr const char* serial_program = "serial";

}  // namespace partita::cli
