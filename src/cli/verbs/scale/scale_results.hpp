#pragma once

#include "partita/base/types.hpp"
#include "src/cli/support/conditions.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace partita::cli {

/// One strategy on one number of ranks, with what was measured of it so far.
struct ScaleRun {
  std::string strategy;     ///< as the command line names it: alike for all its rank counts
  std::string fingerprint;  ///< of the strategy's text, to know it again
  int ranks = 1;
  Index batch = 0;              ///< of all ranks together
  std::vector<double> repeats;  ///< seconds a step: the median of each run
  std::optional<double> predicted;
  int status = 0;       ///< of the run that failed last, if none succeeded after it
  std::string message;  ///< what that run said

  /// Median of the repeats; only where there are some.
  double seconds() const;
  /// Distance of the repeats' quartiles, relative to the median.
  double spread() const;
  double images_per_second() const { return static_cast<double>(batch) / seconds(); }
};

/// A scaling experiment: what is the same for all runs, and the runs.
struct ScaleResults {
  std::string model;
  bool weak = false;  ///< the batch grows with the ranks
  Index batch = 0;    ///< of all ranks, or of each in weak scaling
  Index steps = 0;    ///< of a run that count
  std::string dtype;
  std::string arguments;  ///< the other options of every run
  std::string launcher;   ///< that starts the ranks
  Conditions conditions;
  int threads = 1;  ///< a rank
  int repeats = 0;  ///< asked for
  std::vector<ScaleRun> runs;

  /// The run of that strategy on so many ranks; a new one if there is none, among those of its strategy by ranks.
  ScaleRun& run(const ScaleRun& wanted);
  /// Images a second over those of the fewest ranks of the same strategy; of one that fits a single number of ranks, over
  /// those of the serial program, if that ran.
  double speed_up(const ScaleRun& run) const;
  /// Speed-up by how many times as many ranks.
  double efficiency(const ScaleRun& run) const;

  /// As scale writes it with --out, with --csv, and on the terminal.
  std::string json() const;
  std::string csv() const;
  std::string table() const;

  /// Reads what json() wrote. Throws Error, which begins with `option` and the path, for anything else.
  static ScaleResults load(const char* option, const std::string& path);
  /// How another experiment differs so far that its runs cannot stand beside these: "its batch is 64, here 128"; "" if it
  /// does not.
  std::string difference(const ScaleResults& here) const;

 private:
  const ScaleRun& base(const ScaleRun& run) const;
};

/// By sorting; values between two are linear.
double median(std::vector<double> values);

/// The name of the run without any strategy on one rank.
inline constexpr const char* serial_program = "serial";

}  // namespace partita::cli
