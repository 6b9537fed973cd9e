#pragma once

#include "partita/base/types.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// How the learning rate falls after the warm-up.
enum class Decay : std::uint8_t { none, linear, cosine };

/// What becomes of a weight w in step t (counted from 1) with gradient g = dw; every state starts at zero.
enum class Method : std::uint8_t {
  sgd,      ///< g += decay w; v = momentum v + g; w -= rate (nesterov ? g + momentum v : v)
  adagrad,  ///< g += decay w; s += g^2; w -= rate g / (sqrt s + epsilon). Duchi et al. 2011
  rmsprop,  ///< g += decay w; s = beta2 s + (1-beta2) g^2; v = momentum v + g / (sqrt s + epsilon); w -= rate v. Hinton 2012
  adam,   ///< g += decay w; m = beta1 m + (1-beta1) g; s = beta2 s + (1-beta2) g^2;
          ///< w -= rate m/(1-beta1^t) / (sqrt(s/(1-beta2^t)) + epsilon). Kingma and Ba 2015
  adamw,  ///< adam with w -= rate decay w beside it, not in g. Loshchilov and Hutter 2019
  lars,   ///< v = momentum v + trust |w|/(|g| + decay |w|) rate (g + decay w); w -= v. You et al. 2017
  lamb,   ///< r = adam's direction + decay w; w -= rate |w|/|r| r. You et al. 2020
};

/// e.g. "adamw".
std::string_view name(Method method);
/// The inverse; throws Error with the nearest name.
Method parse_method(const std::string& text);
/// A learning rate to begin with: 0.05 for sgd and lars, 0.01 for adagrad, 0.001 for the others.
double usual_rate(Method method);

/// The optimizer: what is to be done. Pure; train/update.hpp does it.
/// lars and lamb scale a step by norms of the whole weight, wherever its shards lie; biases and the weights of
/// normalisations have neither decay nor such a scale.
struct Optimizer {
  Method method = Method::sgd;
  double rate = 0.05;         ///< the highest learning rate
  double momentum = 0.9;      ///< of sgd, rmsprop and lars
  bool nesterov = false;      ///< of sgd
  double beta1 = 0.9;         ///< of adam, adamw and lamb
  double beta2 = 0.999;       ///< of these and of rmsprop
  double epsilon = 1e-8;      ///< of all that divide by a root
  double trust = 0.001;       ///< of lars
  double weight_decay = 0;    ///< not for biases and normalisation
  Index warm_up = 0;          ///< steps in which the rate rises linearly from rate/warm_up
  Decay decay = Decay::none;  ///< from the end of the warm-up to the last step, down to 0

  /// Learning rate of step `step` of `steps`, counted from 0.
  double rate_at(Index step, Index steps) const;
  /// The numbers that it keeps for each weight, by their names in a checkpoint: "velocity", "mean", "square".
  std::vector<std::string_view> states() const;
  /// True if a step needs norms of whole weights.
  bool needs_norms() const { return method == Method::lars || method == Method::lamb; }
  /// Throws Error for a value that cannot be, saying what can.
  void check() const;
  /// e.g. "sgd rate 0.05 momentum 0.9 nesterov".
  std::string print() const;
};

/// "none", "linear" or "cosine"; throws Error for another word.
Decay parse_decay(const std::string& text);

}  // namespace partita
