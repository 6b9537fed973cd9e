#pragma once

#include "src/cli/output/batch_script.hpp"
#include "src/cli/verbs/scale/scale_options.hpp"
#include "src/cli/verbs/scale/scale_results.hpp"

#include <optional>
#include <string>
#include <vector>

namespace partita::cli {

/// One strategy on one number of ranks, as a job.
struct SlurmPoint {
  std::string name;  ///< of the strategy
  int ranks = 1;
  BatchPoint job;
};

/// How a job's last run failed.
struct JobFailure {
  int status = 0;
  std::string message;  ///< the end of what it printed
};

/// The jobs of an experiment, which write into a folder beside the results: --out with ".slurm" at its end. Slurm gives
/// all jobs of an array equal resources, so there is an array for each number of ranks.
class SlurmJobs {
 public:
  SlurmJobs(const ScaleOptions& options, std::vector<SlurmPoint> points);

  /// Returns the points to submit: all, or with --resubmit those without all results that are in no queue. Throws Error
  /// if there are jobs already, and --resubmit is not given; or none, and it is given.
  std::vector<std::size_t> unfinished() const;
  /// Returns the scripts and the commands that submit them.
  std::string print(const std::vector<std::size_t>& which) const;
  /// Writes and submits the scripts, and says what was submitted. Throws Error, with what sbatch printed, if it fails.
  void submit(const std::vector<std::size_t>& which) const;

  /// Writes what all jobs have in common, and checks it when results are gathered or jobs submitted again. Throws Error
  /// for another experiment.
  void keep_experiment(ScaleResults experiment) const;
  void check_experiment(ScaleResults experiment) const;

  /// The file with the result of a run of a point; `repeat` counts from 1. It exists once the run has ended well.
  std::string result(std::size_t point, int repeat) const;
  std::optional<JobFailure> failure(std::size_t point) const;
  /// Says where the job of a point is: its state in Slurm's queue, or that it is in none.
  std::string state(std::size_t point) const;

 private:
  struct Array {
    std::string script, text;
    std::vector<std::string> command;  // that submits it
  };
  std::vector<Array> arrays(const std::vector<std::size_t>& which) const;
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void read_queue();

  const ScaleOptions& options_;
  std::vector<SlurmPoint> points_;
  std::string folder_;
  std::vector<std::string> states_;  // by point; "" for one that is in no queue
};

}  // namespace partita::cli
