#pragma once

#include <span>
#include <string>
#include <vector>

namespace partita::cli {

/// What a job asks Slurm for.
struct BatchRequest {
  std::string name;                 ///< of the job
  int ranks = 1;                    ///< tasks
  int ranks_per_node = 0;           ///< 0: Slurm places them, block by block
  int threads = 1;                  ///< cores of each rank
  std::string output;               ///< the file for what the job prints, as sbatch reads it
  std::vector<std::string> others;  ///< more options of sbatch, each a word; they come last, and so win
  std::string folder;               ///< in which the job runs
};

/// One point of an experiment: a job of an array.
struct BatchPoint {
  int number = 0;                    ///< the job's number in the array
  std::vector<std::string> command;  ///< what starts its ranks, without `--json FILE`
};

/// Returns a word as a shell reads it. The second function also joins words.
std::string shell_word(const std::string& word);
std::string shell_words(std::span<const std::string> words);

/// Returns a script for sbatch whose jobs run the points of an array, which have equal ranks, each `repeats` times.
/// Results go to `results`/POINT.REPEAT.json, which exists when that run has ended well; a run whose file is there is
/// left out. The exit status of a run that failed goes to `results`/POINT.status. A job that a failing node ends leaves
/// neither.
std::string array_script(const BatchRequest& request, std::span<const BatchPoint> points, int repeats,
                         const std::string& results);

/// A training that continues in another job until it is finished.
struct BatchTraining {
  std::vector<std::string> first, next;  ///< the commands of the first run, and of one that resumes
  std::string save;                      ///< the checkpoint
  std::string json;                      ///< the results, which say whether the training is finished
  double seconds = 0;                    ///< time limit of a run
};

/// Returns a script for sbatch that starts a training, or resumes it if its checkpoint is there, and puts its job into
/// the queue again until the training is finished. If a run fails, the job ends with its exit status.
std::string requeuing_script(const BatchRequest& request, const BatchTraining& training);

}  // namespace partita::cli
