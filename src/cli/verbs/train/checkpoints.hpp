#pragma once

#include "partita/train/checkpoint/checkpoint.hpp"
#include "src/cli/options/train_options.hpp"
#include "src/cli/verbs/train/kept_checkpoints.hpp"
#include "src/cli/verbs/train/signals.hpp"
#include "src/cli/verbs/train/time_limit.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace partita::cli {

/// Opens the checkpoint that --load names; nothing without --load. `train` without --new-run then takes from it the
/// options that were not given on the command line. Adds a line to `notes` for each option in which the two differ.
/// Throws Error if the file cannot be read, or if options do not fit together.
std::optional<CheckpointFile> open_checkpoint(TrainOptions& options, std::vector<std::string>& notes);
/// Throws Error if --save or --best names a file that this run may not replace: one that is not a checkpoint, or a
/// checkpoint of another run. Returns the identity of the checkpoint that --save may replace; nothing if there is none.
/// Only one rank calls it.
std::optional<std::uint64_t> check_replaceable(const TrainOptions& options);

/// True if both checkpoints can be of one training: what a resumed training must keep is the same.
bool same_run(const std::string& one, const std::string& other);

/// Returns the words of a command line without some options, each with true if it has a value.
std::vector<std::string> words_without(const std::vector<std::string>& words,
                                       std::span<const std::pair<std::string_view, bool>> options);
/// Returns the words of a training's command line with which it goes on from the checkpoint that it saved.
std::vector<std::string> resuming_words(const std::vector<std::string>& words, const std::string& save);

/// The checkpoints of one run of `train` or `evaluate`: loads one, saves after every epoch, after every --save-every
/// steps and when a signal asks for it. Ends the training for a signal or in time (--time-limit).
class Checkpoints {
 public:
  /// `replaceable` is what check_replaceable() returned on rank 0.
  /// @pre `options` and `world` outlive the object.
  Checkpoints(const TrainOptions& options, std::optional<std::uint64_t> replaceable, Communicator& world);

  /// Loads the weights, or the whole state, and prints what was not loaded and `notes`. Collective: every rank calls
  /// it.
  void load(Trainer& trainer, const CheckpointFile& file, const std::vector<std::string>& notes);
  /// Before training: SIGTERM no longer ends the process, but asks for a checkpoint and for the end of the training.
  void before_training() { stopping_.emplace(SIGTERM); }
  /// After training, which has been saved: SIGTERM ends the process again. Collective: every rank calls it.
  void after_training();
  /// What signals, and the end of the time, ask for. A trainer calls it once in each step.
  Requests requests();
  /// After each step of training: returns true if a checkpoint is due. `ends_epoch`: one is saved anyway. Ends the
  /// epoch if a signal asks for the end. Collective: every rank calls it.
  bool is_due(Trainer& trainer, bool ends_epoch);
  /// Saves a checkpoint, with --save. Collective: every rank calls it.
  void save(Trainer& trainer);
  /// True if a signal or the time has ended the training.
  bool stopped() const { return stopped_; }
  /// Prints how to resume a run that was stopped. Throws RunFailed if nothing was saved.
  void finish(const Trainer& trainer) const;
  /// Says, for the end of an error message, which checkpoint stays.
  std::string kept() const;

 private:
  void check_owner() const;
  /// Before the checkpoint of `step` replaces the one before it.
  void keep(Index step);
  std::string resuming_command() const;

  const TrainOptions& options_;
  Communicator& world_;
  bool first_;
  std::optional<SignalWatch> stopping_;
  std::optional<TimeLimit> limit_;       // on rank 0, which decides for all
  std::optional<KeptCheckpoints> kept_;  // on rank 0
  std::optional<std::uint64_t> own_;     // on rank 0: CheckpointFile::identity of the file that this run may replace
  Index saved_step_ = -1, there_ = -1;   // of what this run has saved, and of what it may have continued
  bool asked_ = false;                   // for the next save, by SIGUSR1
  bool stopped_ = false, limit_stopped_ = false;
};

}  // namespace partita::cli
