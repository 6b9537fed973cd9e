#pragma once

#include <string>
#include <vector>

namespace partita {

/// What a stage does next with one of its groups of layers and one microbatch.
struct Action {
  enum class Kind : unsigned char {
    forward,   ///< all layers of the group, in order
    backward,  ///< their gradients, in reverse order: of weights and inputs together
    reduce,    ///< sums of weight gradients over the ranks that formed parts of them
    step,      ///< the optimizer's update
  };
  Kind kind = Kind::forward;
  int group = 0;
  int microbatch = 0;
  bool operator==(const Action&) const = default;
};

/// An ordered list of actions a stage; dependencies are derived, never stored. A value.
struct Schedule {
  std::vector<std::vector<Action>> stages;
  /// One line a stage, e.g. "F0 B0 reduce step".
  std::string print() const;
};

/// One stage, one microbatch: forward, and for training backward, reduction and update.
Schedule single_stage(bool training);

}  // namespace partita
