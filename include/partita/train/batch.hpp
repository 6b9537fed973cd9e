#pragma once

#include "partita/device/tensor.hpp"

namespace partita {

/// One rank's part of a microbatch.
struct Batch {
  Tensor images;  ///< the rank's box of the input layer's output
  Tensor target;  ///< the rank's box of the loss's target: labels (i32), or values in the dtype of the images
};

/// The result of one microbatch or one step.
struct StepResult {
  double loss = 0;           ///< mean over the global batch, or what of it counts; the same number on every rank
  double accuracy = 0;       ///< fraction of correct predictions; NaN if the target holds values
  double gradient_norm = 0;  ///< over all weights, before clipping; 0 without training
  bool skipped = false;      ///< the weights were not updated (TrainerOptions::on_nan, and overflow of f16)
  double weight = 1;         ///< mean weight of the target's elements, of which some may count for less than others
  double counted = 1;        ///< the fraction of the target's elements that count
};

}  // namespace partita
