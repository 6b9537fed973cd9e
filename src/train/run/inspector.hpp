#pragma once

#include "partita/train/run/layer_runner.hpp"

#include <string>

namespace partita {

/// True if a tensor has no NaN and no infinity. Numbers of integer types are finite.
bool is_finite(const Tensor& tensor);

/// Looks for the first number that is not finite while a step is repeated, on one rank. First is what a serial program
/// would have computed first: forward in the model's order, then backward, then the sums of gradients.
class Inspector {
 public:
  Inspector(const Plan& plan, Parameters& parameters) : plan_(plan), parameters_(parameters) {}

  /// Looks at what an operation of a layer has computed.
  void look(const StepOp& op, const Microbatch& m);
  /// Looks at the sums of a bucket whose last layer is `layer`.
  void look_at_sum(int layer, const Tensor& sum);
  /// Returns what was found first on any rank, and on which; "" if nothing was found.
  /// Collective: every rank of `world` calls it.
  std::string first(Communicator& world) const;

 private:
  void found(double order, int layer, const char* what);
  bool finite_weights(int layer) const;

  const Plan& plan_;
  Parameters& parameters_;
  double order_ = 0;  // of what was found first; below 0: nothing
  bool any_ = false;
  std::string text_;
};

}  // namespace partita
