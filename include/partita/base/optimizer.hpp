#pragma once

#include "partita/base/types.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// How the learning rate falls after the warm-up.
enum class Decay : std::uint8_t { none, linear, cosine };

/// The update of a weight w in step t (counted from 1) with gradient g = dw. All state starts at zero.
enum class Method : std::uint8_t {
  sgd,      ///< g += decay w; v = momentum v + g; w -= rate (nesterov ? g + momentum v : v)
  adagrad,  ///< g += decay w; s += g^2; w -= rate g / (sqrt s + epsilon). Duchi et al. 2011
  /// g += decay w; s = beta2 s + (1-beta2) g^2; v = momentum v + g / (sqrt s + epsilon); w -= rate v. Hinton 2012
  rmsprop,
  adam,   ///< g += decay w; m = beta1 m + (1-beta1) g; s = beta2 s + (1-beta2) g^2;
          ///< w -= rate m/(1-beta1^t) / (sqrt(s/(1-beta2^t)) + epsilon). Kingma and Ba 2015
  adamw,  ///< adam, but with w -= rate decay w instead of decay in g. Loshchilov and Hutter 2019
  lars,   ///< v = momentum v + trust |w|/(|g| + decay |w|) rate (g + decay w); w -= v. You et al. 2017
  lamb,   ///< r = adam's direction + decay w; w -= rate |w|/|r| r. You et al. 2020
};

/// Returns the method's name, e.g. "adamw".
std::string_view name(Method method);
/// The inverse of name(). Throws Error with the nearest name for an unknown one.
Method parse_method(const std::string& text);
/// The default learning rate: 0.05 for sgd and lars, 0.01 for adagrad, 0.001 for the others.
double usual_rate(Method method);

/// The optimizer's settings. It is a pure value: Backend::update does the work. lars and lamb scale a step by
/// norms of the whole weight, however it is sharded. The scale is 1, also with weight decay, if the norm of the weight
/// or of its gradient g (lamb: of r) is 0, as in TensorFlow's LARSOptimizer; the paper does not treat this case. Biases
/// and the weights of normalizations have neither weight decay nor this scale.
struct Optimizer {
  Method method = Method::sgd;
  double rate = 0.05;         ///< the highest learning rate
  double momentum = 0.9;      ///< used by sgd, rmsprop and lars
  bool nesterov = false;      ///< used by sgd
  double beta1 = 0.9;         ///< used by adam, adamw and lamb
  double beta2 = 0.999;       ///< used by adam, adamw, lamb and rmsprop
  double epsilon = 1e-8;      ///< added to the denominator; used by adagrad, rmsprop, adam, adamw and lamb
  double trust = 0.001;       ///< used by lars
  double weight_decay = 0;    ///< not applied to biases and normalizations
  Index warm_up = 0;          ///< steps in which the rate rises linearly from rate/warm_up
  Decay decay = Decay::none;  ///< from the end of the warm-up to the last step, down to floor * rate
  double floor = 0;           ///< from 0 to 1
  /// The gradients are scaled down to this norm over all weights where theirs is larger; 0: never (Pascanu et al. 2013)
  double clip_norm = 0;

  /// Returns the learning rate of step `step` (counted from 0) of `steps`.
  double rate_at(Index step, Index steps) const;
  /// The values kept per weight element, by their names in a checkpoint: "velocity", "mean", "square".
  std::vector<std::string_view> states() const;
  /// True if a step needs norms of whole weights.
  bool needs_norms() const { return method == Method::lars || method == Method::lamb; }
  /// Throws Error for an invalid value and says which values are valid.
  void check() const;
  /// e.g. "sgd rate 0.05 momentum 0.9 nesterov".
  std::string print() const;
};

/// The learning rate of a step, and its number from 0.
struct StepRate {
  double rate = 0;
  Index step = 0;
};

/// Parses "none", "linear" or "cosine". Throws Error for another word.
Decay parse_decay(const std::string& text);

}  // namespace partita
