#pragma once

#include "partita/train/trainer/trainer.hpp"
#include "src/train/executor/parameters.hpp"
#include "src/train/trainer/plan_set.hpp"

namespace partita {

/// The parts of a trainer, for tests and benchmarks that look inside.
struct TrainerParts {
  static Parameters& parameters(Trainer& trainer) { return *trainer.parameters_; }
  /// The communicators by which gradients are summed, and sharded states are gathered.
  static const ProcessGrid& gradient_grid(const Trainer& trainer) { return *trainer.ranks_->gradient_grid; }
  /// Returns what runs batches of this size. The first call for a size binds the strategy: it is collective.
  static Executor& executor(Trainer& trainer, Index batch, bool training) {
    return *trainer.plans_->of(batch, training).executor;
  }
};

}  // namespace partita
