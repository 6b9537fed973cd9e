#pragma once

#include "partita/train/checkpoint/checkpoint.hpp"
#include "partita/train/trainer_options.hpp"

#include <set>

namespace partita {

/// What a checkpoint says about the training that wrote it.
struct RunRecord {
  RunRecord() = default;
  /// Reads the record of a checkpoint. Throws Error, with the checkpoint's path, if it has none.
  explicit RunRecord(const CheckpointFile& file);

  /// What decides about f16's loss scale, and the steps that left the weights as they were.
  struct Guard {
    double scale = 1;
    Index good_steps = 0, not_finite = 0, beyond_f16 = 0;
  };

  std::string model;      ///< Model::describe
  std::string version;    ///< of the program; "" if a program before version 0.2 wrote the checkpoint
  Index step = 0;         ///< steps done
  Index samples = 0;      ///< of an epoch; 0 before the first
  Index decay_steps = 0;  ///< the step at which the decay of the learning rate ends
  Guard guard;
  TrainerOptions options;  ///< with the options that shape the course of a training

  /// Returns the attributes of a checkpoint, of which the constructor makes the same record.
  std::map<std::string, std::string> attributes() const;
  /// Returns e.g. "of the model 'resnet18' with seed 1 after 40 steps".
  std::string print() const;
};

/// Lets a resumed training follow the course of the one that wrote the checkpoint: takes options from the record,
/// except those whose names are in `given`. The names are those of the command line ("rate", "warm-up"). Returns one
/// line for each option in which the two differ, which says what is done about it.
std::vector<std::string> follow(const RunRecord& record, const std::set<std::string>& given, TrainerOptions& options);

/// Throws Error if the checkpoint `path` is of another model than `model` (Model::describe). With `resume` the message
/// says how to take its weights for a new training.
void check_same_model(const RunRecord& record, const std::string& path, const std::string& model, bool resume);
/// Throws Error if a training with these options cannot go on where the checkpoint `path` ends: because of another
/// seed, batch, data set or optimizer. The message says how to go on, and how to start a new training.
void check_resumable(const RunRecord& record, const std::string& path, const TrainerOptions& options);

}  // namespace partita
