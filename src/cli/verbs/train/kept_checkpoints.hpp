#pragma once

#include "partita/base/types.hpp"

#include <set>
#include <string>

namespace partita::cli {

/// The checkpoints before the one that --save names, which --keep leaves there. Their names have the step: w.step120.h5
/// beside w.h5 or, if that is a link, beside the file that it names. Only rank 0 has one.
class KeptCheckpoints {
 public:
  /// Keeps `count` checkpoints in all. If the run continues that of the checkpoint at `path`, of step `there`, those of
  /// earlier steps count too; -1: it does not.
  KeptCheckpoints(const std::string& path, Index count, Index there);

  /// Gives the checkpoint at `path`, of that step, a second name before it is replaced. Returns why it cannot, or "".
  std::string keep(Index step);
  /// Removes the oldest checkpoints that are too many, after a new one was saved.
  void drop_oldest();

 private:
  std::string name(Index step) const;

  std::string path_;
  Index count_;
  std::set<Index> steps_;  // that have a second name
};

}  // namespace partita::cli
