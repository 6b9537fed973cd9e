#pragma once

#include "partita/base/optimizer.hpp"
#include "partita/base/types.hpp"
#include "partita/train/data/augment.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace partita {

/// What to do in a step whose loss or gradients are not finite.
enum class OnNan : std::uint8_t {
  stop,  ///< throw RunFailed, which says in which layer and on which rank the first such number appeared
  skip,  ///< leave the weights as they are and go on; after 100 such steps in a row, stop
};

/// What a training is asked to do after its present step, for example by a signal.
struct Requests {
  bool save = false;  ///< write a checkpoint
  bool stop = false;  ///< end the training
};

/// Everything about a training that is neither model nor strategy nor data.
struct TrainerOptions {
  Index batch = 128;  ///< global samples a step
  DType dtype = DType::f32;
  Optimizer optimizer;
  Index epochs = 1;
  Index steps = 0;  ///< stop after so many steps in all; 0: run all epochs
  std::uint64_t seed = 1;
  Augmentation augmentation;
  std::string backend = "auto";
  int threads = 1;
  bool overlap = true;
  /// On a device: capture steps that repeat themselves as graphs, where the transport of messages allows it.
  bool graphs = true;
  Index memory_limit = 0;       ///< bytes of tensors a rank; 0: none
  bool training = true;         ///< false: evaluation alone, without gradients and optimizer state
  std::string kernel_folder{};  ///< where measured choices of kernels are kept; "": by rule, without measuring
  std::function<void(Index done, Index all)> measuring{};  ///< called on every rank while kernels are measured
  /// The learning rate's decay ends at this step. 0: at the last step of the training, or where it ends in the
  /// checkpoint that was loaded.
  Index decay_steps = 0;
  OnNan on_nan = OnNan::stop;
  Index check_replicas = 0;  ///< after each so many steps, Trainer::check_replicas(); 0: never
  /// True if a step may leave the weights as they are: then it keeps the running statistics until it ends.
  bool may_skip() const { return on_nan == OnNan::skip || dtype == DType::f16; }
  std::string data{};  ///< name of the training data, for checkpoints: a resumed training must have the same
  /// Called on every rank in every step. All ranks then get what any of them returned (Trainer::take_requests).
  std::function<Requests()> requests{};
};

}  // namespace partita
