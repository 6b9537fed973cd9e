#pragma once

#include "partita/strategies/plan.hpp"

namespace partita {

/// Adds what a rank of a layer's stage holds for good of its weights beside their buckets: those that are not trained, and copies
/// that kernels read.
void add_weights(const Plan& plan, const LayerPlan& layer, int rank, MemoryUse& use);

/// Adds what it holds of a bucket, weights, gradients and the optimizer's state: of one layer, or with -1 of all.
void add_bucket(const Plan& plan, const Bucket& bucket, int layer, int rank, MemoryUse& use);

}  // namespace partita
