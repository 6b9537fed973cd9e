#pragma once

#include "partita/train/trainer/class_counts.hpp"
#include "src/train/executor/executor.hpp"
#include "src/train/kernels/kernel_choice.hpp"
#include "src/train/trainer/memory_account.hpp"
#include "src/train/trainer/stage_ranks.hpp"

#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

namespace partita {

/// A plan with its executor, and what a step of it does by prediction.
struct BoundPlan {
  Plan plan;
  std::unique_ptr<Executor> executor;
  Traffic predicted;
  Traffic of_update;  ///< the part of `predicted` that a skipped step does not move
  MemoryAccount::StepPeak memory;
};

/// The plans of one strategy for all sizes of batches, for training and for evaluation. All run on the same weights.
class PlanSet {
 public:
  /// What all plans share. Everything outlives the plans.
  struct Shared {
    const Model& model;
    const Strategy& strategy;
    const TrainerOptions& options;
    Communicator& world;
    StageRanks& ranks;
    Backend& backend;
    Parameters& parameters;
    StepGuard& guard;
    MemoryAccount& memory;
    const std::shared_ptr<Allocator>& allocator;  ///< of tensors
  };

  /// @param whole the plan of a whole batch
  /// Collective: every rank of the world calls it.
  PlanSet(const Shared& shared, Plan whole);

  /// Returns the plan for batches of this size. The first call for a size binds the strategy: it is collective (every
  /// rank of the world calls it) and throws Error, alike on every rank, if the strategy cannot be bound.
  BoundPlan& of(Index batch, bool training) { return of(batch, training, 0, shared_.model); }
  /// The same for an evaluation of `whole.at_places(places)`, a model with the weights of this one.
  BoundPlan& of_places(Index batch, Index places, const Model& whole) { return of(batch, false, places, whole); }
  /// How the kernels of all plans so far were chosen.
  const KernelReport& kernel_report() const { return kernels_; }

  /// Counts predictions by class in every evaluation until take_counts(); 0 classes count nothing.
  void start_counts(Index classes, std::optional<Index> ignored) { counts_ = ClassCounts(classes, ignored); }
  ClassCounts take_counts() { return std::exchange(counts_, ClassCounts()); }

 private:
  BoundPlan& of(Index batch, bool training, Index places, const Model& model);
  void prepare(BoundPlan& entry, Plan plan);
  void count_classes(const Executor& executor, int microbatch, const Tensor& scores, const Tensor& target);
  bool captures() const;

  Shared shared_;
  std::map<std::tuple<Index, bool, Index>, BoundPlan> plans_;  // by batch, training and places
  KernelReport kernels_;
  ClassCounts counts_;  // of this rank, in the current evaluation
};

}  // namespace partita
