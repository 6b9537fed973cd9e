#pragma once

#include "partita/base/types.hpp"

#include <string>

namespace partita {

/// How the learning rate falls after the warm-up.
enum class Decay : std::uint8_t { none, linear, cosine };

/// Stochastic gradient descent: g = dw + weight_decay * w; v = momentum * v + g; w -= rate * (nesterov ? g + momentum *
/// v : v). Pure: what is to be done; Parameters::update (train/executor.hpp) does it.
struct Optimizer {
  double rate = 0.05;  ///< the highest learning rate
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;    ///< not for biases and normalisation
  Index warm_up = 0;          ///< steps in which the rate rises linearly from rate/warm_up
  Decay decay = Decay::none;  ///< from the end of the warm-up to the last step, down to 0

  /// Learning rate of step `step` of `steps`, counted from 0.
  double rate_at(Index step, Index steps) const;
  /// Throws Error for a value that cannot be, saying what can.
  void check() const;
  /// e.g. "sgd rate 0.05 momentum 0.9 nesterov".
  std::string print() const;
};

/// "none", "linear" or "cosine"; throws Error for another word.
Decay parse_decay(const std::string& text);

}  // namespace partita
