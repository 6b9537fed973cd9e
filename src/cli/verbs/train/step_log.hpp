#pragma once

#include "src/cli/verbs/train/progress.hpp"

#include <cstdio>
#include <memory>
#include <string>

namespace partita::cli {

/// The CSV file of `train --log`: a header and a row for each step, which is in the file as soon as the step is done.
/// Only rank 0 has one.
class StepLog {
 public:
  static constexpr std::string_view header =
      "epoch,step,loss,accuracy,learning_rate,seconds,images_per_second,gradient_norm";

  /// Throws Error if `path` cannot be written, or if it is a file that is not such a log: a log is replaced, other
  /// files are not.
  static void check(const std::string& path);
  /// Opens the log of a training that has done `steps_done` steps. If there are none, the file begins anew; else its
  /// rows up to this step stay, and later rows, which a training wrote after its last checkpoint, are removed. Throws
  /// Error if the file cannot be written.
  StepLog(const std::string& path, Index steps_done);
  /// Adds a row. If that fails, e.g. because the disk is full, prints a note once; the training goes on.
  void add(const StepRecord& step);

 private:
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace partita::cli
