#pragma once

#include "src/train/trainer/memory_account.hpp"
#include "src/train/trainer/plan_set.hpp"
#include "src/train/trainer/sample_order.hpp"

#include <exception>
#include <map>

namespace partita {

/// Brings samples of data sets to the executors of one rank: it tells a data set what the rank will read, in which
/// order, and then reads each microbatch into the memory of the CPU.
class DataFeed {
 public:
  /// @pre All that is given outlives the feed.
  DataFeed(const TrainerOptions& options, Communicator& world, MemoryAccount& memory, PlanSet& plans,
           std::shared_ptr<Allocator> allocator)
      : options_(options), world_(world), memory_(memory), plans_(plans), allocator_(std::move(allocator)) {}

  /// Tells a data set which boxes of which samples this rank will read, in this order. Damage that is found here fails
  /// on every rank; damage that is found while reading may fail on one rank alone. Throws Error, alike on every rank,
  /// if the data set cannot be read or if the memory limit would be exceeded. Collective: every rank of the world calls
  /// it.
  void announce(Dataset& data, const SampleOrder& order, bool training, const Augmentation& augmentation);
  /// Returns memory for what this rank brings to a microbatch.
  Batch empty_batch(const Executor& executor, int microbatch, Fill fill) const;

  /// The samples of a step, which a data set gives.
  class Step {
   public:
    /// `epoch` keys the augmentation.
    /// @pre All but the order outlives the step.
    Step(const DataFeed& feed, const Executor& executor, Dataset& data, SampleOrder samples,
         const Augmentation& augmentation, Index epoch);

    /// Returns a microbatch, which is read now unless it was read ahead.
    Batch read(int microbatch);
    /// Reads what this rank will ask for, so that it is there at once. What is wrong with it is thrown when it is asked
    /// for.
    void read_ahead();
    /// Returns the first microbatch if it was read ahead, once; otherwise an empty batch.
    Batch take_first();
    const Executor& executor() const { return executor_; }

   private:
    Batch read_now(int microbatch) const;

    const DataFeed& feed_;
    const Executor& executor_;
    Dataset& data_;
    SampleOrder samples_;
    const Augmentation& augmentation_;
    Index epoch_;
    std::vector<SampleInput> own_;  // of the data set
    std::vector<int> numbers_;      // of these, by input of the model
    std::map<int, Batch> ahead_;    // by microbatch
    std::exception_ptr failed_;     // what reading ahead threw
  };

 private:
  const TrainerOptions& options_;
  Communicator& world_;
  MemoryAccount& memory_;
  PlanSet& plans_;
  std::shared_ptr<Allocator> allocator_;
};

}  // namespace partita
