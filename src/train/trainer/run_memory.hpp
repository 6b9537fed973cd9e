#pragma once

#include "partita/comm/communicator.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "partita/train/data/augment.hpp"
#include "partita/train/data/dataset.hpp"
#include "src/train/trainer/card_ranks.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace partita {

/// One pass over a data set: an epoch of training, or an evaluation.
struct DataPass {
  const Dataset* data = nullptr;
  bool training = true;
  Augmentation augmentation{};
};

/// What one rank reads of the samples of a pass.
struct DataShare {
  std::vector<int> layers;          ///< the model's inputs
  std::vector<std::string> names;   ///< of these
  std::vector<SampleShare> inputs;  ///< of each of them
  Index targets = 0;                ///< their number
  Box target_box;                   ///< of each target
};

/// When a run saves checkpoints. A signal may ask for one inside an epoch.
enum class Saves : std::uint8_t { never, between_epochs, anywhere };

/// Predicts the memory that each rank holds in a run. A plan belongs to one batch size, so a run has several: of whole
/// batches, of the smaller last batch of each data set, and the same for evaluation. Weights, gradients and optimizer
/// state are those of the plan of a whole batch.
class RunMemory {
 public:
  /// Returns the plan of a batch size, for training or for evaluation.
  using PlanOf = std::function<const Plan&(Index batch, bool training)>;

  /// `batch` is the size of a whole batch. `training` is false for an evaluation alone. `may_skip`: a step may be
  /// skipped, so that it keeps the running statistics until it ends.
  RunMemory(Index batch, bool training, bool may_skip, PlanOf plan_of, const MessageMemory& messages = {})
      : batch_(batch), training_(training), may_skip_(may_skip), messages_(messages), plan_of_(std::move(plan_of)) {}

  /// The plan of a whole batch.
  const Plan& plan() const { return plan_of_(batch_, training_); }
  /// Returns what a rank reads of samples that are read in batches.
  DataShare share(Index samples, bool training, int rank) const;
  /// Returns the bytes that a data set holds while a rank reads these samples. Throws Error if it has other inputs than
  /// the model.
  static Index data_bytes(const Dataset& data, const DataShare& share, const Augmentation& augmentation);
  /// Returns the bytes of the longest list of samples that a data set needs to be told.
  static Index list_bytes(const Dataset& data, const DataShare& share);
  /// Returns the bytes of an epoch's order; an evaluation has none.
  static Index order_bytes(Index samples, bool training);
  /// Returns the bytes that a rank holds for the communicators that these passes need (Communicator::shared_bytes).
  Index shared_bytes(std::span<const DataPass> passes, const Communicator& world, int rank) const;
  /// Returns the peak of a rank in a step, in which it holds `held` all the time.
  MemoryPeak step_peak(const Plan& plan, const MemoryUse& held, int rank) const {
    return peak_memory(plan, rank, held, messages_);
  }
  /// Returns the bytes that a rank of the world needs to save or load a checkpoint of the weights and, with
  /// `optimizer`, its state. A sharded state is gathered first. If it is `saved`, the rank then holds the rows of a
  /// tensor that it writes.
  Index checkpoint_bytes(const Plan& plan, int rank, bool optimizer, bool saved) const;
  /// Returns the peak of a rank in one pass, in which it holds `held` all the time. `arrives` as in in_step().
  MemoryPeak pass_peak(Index samples, bool training, const MemoryUse& held, int rank, bool arrives) const;
  /// Returns what a rank holds in each step, if it holds `held` between steps. `arrives`: the first microbatch comes to
  /// a device during the step before.
  MemoryUse in_step(const Plan& plan, MemoryUse held, int rank, bool arrives) const;
  /// Returns the peak of a rank in a run of these passes, of which each data set is held from the first announcement to
  /// the end. `loads`: a checkpoint is loaded.
  MemoryPeak peak(std::span<const DataPass> passes, const BesideTensors& beside, int rank, Saves saves = Saves::never,
                  bool loads = false) const;

 private:
  void each_batch(Index samples, const std::function<void(Index batch, Index count)>& visit) const;

  Index batch_;
  bool training_, may_skip_;
  MessageMemory messages_;
  PlanOf plan_of_;
};

/// Returns how messages of `between` use memory.
MessageMemory message_memory(const Communicator& between, bool overlap);

/// Returns the peak of a rank while it only holds `held`.
MemoryPeak holding(const MemoryUse& held);

}  // namespace partita
