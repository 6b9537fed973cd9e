#include "src/cli/verbs/train/time_limit.hpp"

namespace partita::cli {

const TimeLimit::Clock::time_point TimeLimit::program_start = Clock::now();

bool TimeLimit::ends_after_step(Clock::time_point now) {
  if (last_ != Clock::time_point()) longest_step_ = std::max(longest_step_, now - last_);
  last_ = now;
  return now + longest_step_ + longest_save_ > end_;
}

}  // namespace partita::cli
