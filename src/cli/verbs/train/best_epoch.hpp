#pragma once

#include "partita/base/types.hpp"

#include <string>

namespace partita::cli {

/// Remembers in which epoch the validation loss was lowest, and decides when a training stops early.
class BestEpoch {
 public:
  /// @param patience epochs without a new lowest loss after which the training stops; 0: it never stops early
  explicit BestEpoch(Index patience) : patience_(patience) {}

  /// Adds the validation loss of an epoch. Returns true if it is the lowest so far. A loss that is not a number never
  /// is.
  bool add(Index epoch, double loss);
  /// True if the last `patience` epochs in a row had no new lowest loss.
  bool exhausted() const { return patience_ > 0 && waited_ >= patience_; }

  Index epoch() const { return epoch_; }  ///< 0 before the first validation
  double loss() const { return loss_; }

  /// Returns the state as a text for a checkpoint, so that a resumed training goes on with it.
  std::string print() const;
  /// Takes over what print() returned; ignores any other text.
  void restore(const std::string& text);

 private:
  Index patience_, epoch_ = 0, waited_ = 0;
  double loss_ = 0;
};

}  // namespace partita::cli
