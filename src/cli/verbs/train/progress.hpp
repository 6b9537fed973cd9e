#pragma once

#include "partita/base/types.hpp"
#include "src/train/executor/layer_runner.hpp"

#include <string>

namespace partita::cli {

/// Returns e.g. "loss 0.1234  accuracy 97.50%"; without an accuracy if it is not a number.
std::string print_result(double loss, double accuracy);
/// Returns a duration in seconds as e.g. "0:42", "3:07" or "1:02:09".
std::string print_duration(double seconds);

/// One step of a pass over a data set, as rank 0 sees it.
struct StepRecord {
  Index epoch = 0;            ///< counted from 1
  Index step = 0, steps = 0;  ///< the step in this pass, counted from 1, and the steps of the pass
  Index done = 0;             ///< steps of the whole training so far
  Index left = 0;             ///< steps that are still to be done: of the whole training, or of an evaluation
  Index samples = 0;          ///< samples of this step
  StepResult result;
  double learning_rate = 0;  ///< 0 in an evaluation
  double seconds = 0;        ///< time of this step
};

/// Returns a line of progress, for files: "epoch 2  step 120/469  loss ...  rate 0.05  2643 images/s  1:05 left".
std::string print_progress(const char* what, const StepRecord& step, double images_per_second, double seconds_left);
/// Returns the same with a bar, in at most `columns` characters, for terminals. A narrow terminal gets shorter words,
/// and a very narrow one less.
std::string print_progress(const char* what, const StepRecord& step, double images_per_second, double seconds_left,
                           int columns);

/// Decides which steps are shown. A terminal shows up to ten a second. A file gets a line when a tenth of the pass is
/// done, but not within 10 s of the last line, and after 10 minutes at the latest: a short run gets none.
class ProgressPace {
 public:
  explicit ProgressPace(bool terminal) : terminal_(terminal) {}
  /// Starts a pass, whose first step was `step`.
  void start(Index step, double time);
  /// Returns true if this step is shown. Times are in seconds.
  bool shows(Index step, Index steps, double time);

 private:
  bool terminal_;
  Index step_ = 0;   // the last shown step
  double time_ = 0;  // when it was shown
};

/// Shows the progress of training and evaluation: one line that is redrawn if the output is a terminal, sparse lines
/// otherwise. Only one rank shows it.
class ProgressBar {
 public:
  explicit ProgressBar(bool shown);
  void step(const char* what, const StepRecord& step);
  /// Counts what is done before the first step, e.g. the kernels that are measured. `what` is e.g. "measuring kernels".
  void count(const char* what, Index done, Index all);
  /// Erases the line on a terminal.
  void clear();

 private:
  bool shown_, terminal_;
  ProgressPace pace_;
  Index first_ = 0, last_ = 0;  // the first and the last step of the current pass
  Index samples_ = 0;           // of the current pass after its first step
  double started_ = 0;          // when its first step ended
  double counted_ = 0;          // when count() last printed
};

}  // namespace partita::cli
