#pragma once

#include "src/train/trainer/memory_account.hpp"
#include "src/train/trainer/plan_set.hpp"
#include "src/train/trainer/sample_order.hpp"

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
  /// Returns zeros for what this rank brings to a microbatch.
  Batch empty_batch(const Executor& executor, int microbatch) const;
  /// Returns what reads the microbatches of a step from a data set. `epoch` keys the augmentation.
  /// @pre All that is given outlives the result.
  Executor::Reader reader(const Executor& executor, Dataset& data, const SampleOrder& samples,
                          const Augmentation& augmentation, Index epoch) const;

 private:
  Batch read(const Executor& executor, int microbatch, Dataset& data, const SampleOrder& all,
             const Augmentation& augmentation, Index epoch) const;

  const TrainerOptions& options_;
  Communicator& world_;
  MemoryAccount& memory_;
  PlanSet& plans_;
  std::shared_ptr<Allocator> allocator_;
};

}  // namespace partita
