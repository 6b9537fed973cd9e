#pragma once

#include "partita/device/tensor.hpp"

#include <vector>

namespace partita {

/// One rank's part of a microbatch.
struct Batch {
  std::vector<Tensor> images;  ///< the rank's box of the output of each input layer, in the model's order
  Tensor target;               ///< the rank's box of the loss's target: labels (i32), or values in the compute type

  /// Returns a batch of make(tensor) for each tensor, images first.
  template <class Make>
  Batch each(Make&& make) const {
    Batch made;
    for (const Tensor& tensor : images) made.images.push_back(make(tensor));
    made.target = make(target);
    return made;
  }
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
