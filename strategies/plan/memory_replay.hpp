#pragma once

#include "partita/strategies/plan/plan.hpp"

#include <optional>

namespace partita {

/// Adds what a rank of a layer's stage holds for good of its weights beside their buckets: those that are not trained, and copies
/// that kernels read.
void add_weights(const Plan& plan, const LayerPlan& layer, int rank, MemoryUse& use);

/// Adds what it holds of a bucket, weights, gradients and the optimizer's state: of all its layers, or of one.
void add_bucket(const Plan& plan, const Bucket& bucket, int rank, MemoryUse& use, std::optional<int> layer = {});

}  // namespace partita
