#pragma once

#include "partita/train/run/trainer.hpp"

#include <string>

namespace partita::cli {

/// Returns e.g. "loss 0.2591  accuracy 90.55%". The accuracy is left out if it is NaN.
std::string print_result(double loss, double accuracy);

/// Shows the progress of training: as a moving bar on a terminal, as a line from time to time elsewhere.
/// Every rank may have one; pass `shown` only on rank 0.
class ProgressBar {
 public:
  explicit ProgressBar(bool shown);
  /// Reports that `step` of the `steps` of epoch `epoch` are done; `what` is the first word of the line.
  void step(const char* what, Index epoch, Index step, Index steps, const StepResult& result, Index batch);
  /// Reports, before the first step, that `done` of the `all` kernels of this rank have been measured.
  void measuring(Index done, Index all);
  /// Removes the bar from the terminal, so that a line can be printed.
  void clear();

 private:
  bool shown_, terminal_;
  Index first_ = 0, last_ = 0;  // first and last step seen in the current pass
  double started_ = 0, printed_ = 0;
};

}  // namespace partita::cli
