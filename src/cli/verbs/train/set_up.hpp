#pragma once

#include "partita/cli/main.hpp"
#include "partita/train/checkpoint/checkpoint.hpp"
#include "partita/train/trainer/trainer.hpp"
#include "src/cli/options/train_options.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace partita::cli {

/// What a rank sets up before training.
struct Setup {
  Model model;
  Strategy strategy;
  std::unique_ptr<Dataset> training, held_out, test;  ///< null if the run does not need them
  std::optional<CheckpointFile> checkpoint;           ///< of --load
  std::vector<std::string> notes;                     ///< about what it holds
  std::string chosen;                                 ///< what was chosen for the machine, and by which price
  std::vector<std::string> rate_notes;                ///< of check_rates()
  std::optional<std::uint64_t> replaceable;           ///< on rank 0: of check_replaceable()
  std::unique_ptr<CudaDevice> device;                 ///< null: the rank computes on the CPU
};

/// Sets up a rank without communication, except that an Error on any rank becomes the same Error on all ranks.
/// Completes the options from the checkpoint that training continues. Collective: every rank of `world` calls it.
Setup set_up(TrainOptions& options, const ModelFactory& factory, Communicator& world);

}  // namespace partita::cli
