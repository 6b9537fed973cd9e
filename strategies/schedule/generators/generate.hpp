#pragma once

#include "partita/strategies/schedule/generators.hpp"

#include <optional>

namespace partita::schedules {

// Each generator in its own words; all return forwards and backwards alone. What they need of the number of microbatches
// is rounded up, and the surplus dropped (first_microbatches): what is left of a schedule without some microbatch is a
// schedule still, since no microbatch needs another.

Schedule gpipe(const ScheduleRequest& request);
Schedule one_f_one_b(const ScheduleRequest& request);
Schedule interleaved(const ScheduleRequest& request);
Schedule chimera(const ScheduleRequest& request);
Schedule zb_h1(const ScheduleRequest& request);
Schedule zb_h2(const ScheduleRequest& request);
Schedule zb_1p(const ScheduleRequest& request);
Schedule zb_2p(const ScheduleRequest& request);
Schedule zb_v(const ScheduleRequest& request);
Schedule v_half(const ScheduleRequest& request);
Schedule v_min(const ScheduleRequest& request);
Schedule dual_pipe_v(const ScheduleRequest& request);

/// Without the microbatches from `count` on.
Schedule first_microbatches(Schedule schedule, int count);

/// A V-shaped schedule with its backward-filters moved to where a stage would wait otherwise, or where there is no room for
/// the next forward in `limit` (activations of a group), and the rest to the end.
Schedule refilled(const Schedule& schedule, const ScheduleRequest& request, double limit);

/// Of several arrangements the one that takes least time, the first of equals.
class Best {
 public:
  explicit Best(const ScheduleRequest& request, int groups);
  void offer(Schedule schedule);
  Schedule take();

 private:
  GroupGraph graph_;
  ScheduleTimes times_;
  double cost_ = 0;
  Schedule best_;
};

/// V-shaped: the groups go down the stages and come up again, two a stage.
inline int v_stage(int group, int stages) { return group < stages ? group : 2 * stages - 1 - group; }

/// When the actions of a V-shaped schedule end, as far as it is arranged, and so when the next ones can begin.
class Arrivals {
 public:
  explicit Arrivals(const ScheduleRequest& request);
  /// Of a forward or a backward-data.
  void end(const Action& action, double time);
  /// When what such an action needs is on its stage; nothing if that is not known yet.
  std::optional<double> of(const Action& action) const;

 private:
  int stages_;
  double transfer_;
  std::vector<std::vector<double>> forward_ends_, backward_ends_;  // by group and microbatch; below 0: not known
};

}  // namespace partita::schedules
