#pragma once

#include "partita/train/trainer_options.hpp"
#include "src/train/trainer/held_data.hpp"
#include "src/train/trainer/run_memory.hpp"

#include <memory>

namespace partita {

/// Adds to a number until the end of a scope, also by an exception.
class Adding {
 public:
  Adding(Index& to, Index amount) : to_(to), amount_(amount) { to_ += amount_; }
  ~Adding() { to_ -= amount_; }
  Adding(const Adding&) = delete;
  Adding& operator=(const Adding&) = delete;

 private:
  Index &to_, amount_;
};

/// The memory that a rank of a training holds by prediction: what it holds between steps, and the peak over all that it
/// has done so far. The allocators count what it says that communicators, kernels and data sets hold.
class MemoryAccount {
 public:
  /// `tensors` allocates the tensors of `rank`, `samples` what lies in the memory of the CPU.
  MemoryAccount(const TrainerOptions& options, int rank, std::shared_ptr<Allocator> tensors,
                const std::shared_ptr<Allocator>& samples, const MessageMemory& messages, RunMemory::PlanOf plan_of);

  /// Throws Error, alike on every rank, if a step of the plan of a whole batch would exceed the limit on any rank.
  void check_step(const Plan& plan, Index workspace) const;
  /// Throws Error if this rank would exceed the limit in a pass over so many samples.
  void check_pass(Index samples, bool training) const;

  /// From now on, the rank holds weights and their states, and the workspace of the backend.
  void hold_state(const Plan& plan, Index workspace);
  /// From now on, the rank holds these bytes for its communicators, instead of those of the call before. Throws Error
  /// if the memory limit would be exceeded.
  void hold_shared(Index bytes);
  /// While the result lives, the rank holds the order of an epoch of so many samples.
  [[nodiscard]] Adding hold_order(Index samples) {
    return {held_[MemoryClass::data], RunMemory::order_bytes(samples, true)};
  }

  /// From now on, the rank holds these bytes for what it keeps of sequences (Generator).
  void hold_places(Index bytes) { held_[MemoryClass::activations] += bytes; }

  /// The peak of a plan's step, and what the rank held beside it.
  struct StepPeak {
    MemoryUse held;
    MemoryPeak memory;
  };
  /// The rank runs a step of a plan. `last` is the plan's own; it is predicted again if the rank holds something else.
  /// `in_pass`: so that its batch comes to a device during the step before.
  void add_step(const Plan& plan, StepPeak& last, bool in_pass);
  /// The rank saves or loads a checkpoint, with or without the state of the optimizer.
  void add_checkpoint(const Plan& plan, bool optimizer, bool saved);
  /// The rank tells a data set what it will read.
  void add_announcement(const Dataset& data, const DataShare& share);

  /// Returns what this rank reads of samples that are read in batches.
  DataShare share(Index samples, bool training) const { return run_.share(samples, training, rank_); }
  /// The data sets that this rank has announced samples to.
  HeldData& data() { return data_; }
  /// The peak so far.
  const MemoryPeak& peak() const { return peak_; }

 private:
  MemoryUse held() const;
  bool on_cpu() const { return tensors_->device().host(); }

  const int rank_;
  const Index limit_;
  std::shared_ptr<Allocator> tensors_;
  RunMemory run_;
  HeldData data_;
  std::shared_ptr<const void> shared_, workspace_;  // count what communicators and kernels hold
  MemoryUse held_;                                  // without data sets
  MemoryPeak peak_;
};

}  // namespace partita
