#pragma once

#include "src/train/executor/layer_runner.hpp"

#include <string>

namespace partita {

/// True if a tensor has no NaN and no infinity. Numbers of integer types are finite. The CPU waits for the stream.
bool is_finite(Backend& backend, const Tensor& tensor, Stream stream);

/// Looks for the first number that is not finite while a step is repeated, on one rank. First is what a serial program
/// would have computed first: forward in the model's order, then backward, then the sums of gradients.
class Inspector {
 public:
  Inspector(const Plan& plan, Parameters& parameters, Backend& backend, Stream stream)
      : plan_(plan), parameters_(parameters), backend_(backend), stream_(stream) {}

  /// Looks at what an operation of a layer has computed.
  void look(const StepOp& op, const Microbatch& m);
  /// Looks at the sums of a bucket whose last layer is `layer`.
  void look_at_sum(int layer, const Tensor& sum);
  /// Returns what was found first on any rank, and on which; "" if nothing was found.
  /// Collective: every rank of `world` calls it.
  std::string first(Communicator& world) const;

 private:
  void found(double order, int layer, const char* what);
  bool finite(const Tensor& tensor) const { return is_finite(backend_, tensor, stream_); }
  bool finite(std::span<const Tensor> tensors) const;
  bool finite_weights(int layer) const;

  const Plan& plan_;
  Parameters& parameters_;
  Backend& backend_;
  Stream stream_;
  double order_ = 0;  // of what was found first; below 0: nothing
  bool any_ = false;
  std::string text_;
};

}  // namespace partita
