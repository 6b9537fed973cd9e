#pragma once

#include "partita/train/trainer/trainer.hpp"
#include "src/cli/files/json.hpp"
#include "src/cli/options/train_options.hpp"
#include "src/cli/verbs/train/best_epoch.hpp"
#include "src/cli/verbs/train/progress.hpp"

#include <string>
#include <vector>

namespace partita::cli {

/// Collects what `train` and `evaluate` report: the JSON file, and the lines at the end of a pass. Every rank has one.
/// If a run continues a training, and the JSON file holds the steps before it, the file goes on with them.
class Results {
 public:
  /// @pre Everything that it refers to outlives it.
  Results(const TrainOptions& options, const Model& model, Trainer& trainer, Communicator& world);

  /// Adds a training step.
  void add(const StepRecord& step);
  /// Adds an epoch of training and prints it.
  void add_epoch(const EpochReport& report);
  /// Reports the best epoch of a training that this run continues.
  void set_best(const BestEpoch& best);
  /// Adds the validation after an epoch and prints it.
  void add_validation(const EpochReport& report, const BestEpoch& best);
  /// Adds the evaluation at the end and prints it.
  void add_test(const EpochReport& report);

  /// Reports the seconds of each rank's delays (Delays::seconds_of_ranks).
  void set_delays(std::vector<double> seconds) { delays_ = std::move(seconds); }

  const std::vector<double>& losses() const { return losses_; }

  /// Writes the JSON file as it is now, whole, if it is a regular file: a run that is killed leaves its curves, and one
  /// that continues from a checkpoint, which is saved after it, finds them. If it cannot be written, rank 0 prints a
  /// note. Collective: every rank calls it.
  void write_so_far();
  /// Prints what was moved and held, and writes the JSON file. `whole` is false if the training was stopped before its
  /// end. Throws Error, alike on every rank, if the file cannot be written. Collective: every rank calls it.
  void finish(bool whole);

 private:
  Json pass(const EpochReport& report) const;
  void print_pass(const char* what, const EpochReport& report) const;
  void add_confusion(const char* what, const EpochReport& report);
  void print_skipped() const;
  void take_over(Index steps_done);
  void fill_gap(const EpochReport& report);
  Json with_earlier(const char* key, Json now) const;
  Json document(bool finished);

  const TrainOptions& options_;
  Trainer& trainer_;
  Communicator& world_;
  bool first_;          // this is rank 0, which prints and writes
  bool segments_;       // the model labels positions, not whole samples
  bool tokens_;         // it predicts tokens: exp(loss) is the perplexity
  bool noted_ = false;  // that the file could not be written
  Json earlier_;        // on rank 0: what the file holds of the steps before this run, if it continues a training
  Json head_, epochs_ = Json::array(), validation_ = Json::array(), best_, test_, confusion_;
  std::vector<double> losses_, accuracies_, rates_;
  std::vector<double> delays_;        // seconds of each rank's delays; empty without --delay
  std::vector<double> step_seconds_;  // on this rank, each from the end of the previous step
};

}  // namespace partita::cli
