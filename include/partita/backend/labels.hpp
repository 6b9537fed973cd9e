#pragma once

#include "partita/device/tensor.hpp"

#include <optional>

namespace partita {

/// The labels of a loss, and what they count for.
struct Labels {
  Tensor of;                          ///< i32, one for each row of channels
  Index classes = 0;                  ///< labels are 0 to classes - 1
  std::optional<Index> ignored = {};  ///< a row with this label counts for nothing
  double smoothing = 0;               ///< the share of a row's loss that all classes have together
  Tensor weights = {};                ///< f64, one for each class; empty: 1 each
  double sum_of_weights = 0;          ///< of all classes
  /// The numbers of a row in a cross-entropy.
  Index numbers() const { return smoothing > 0 ? 5 : 4; }
};

}  // namespace partita
