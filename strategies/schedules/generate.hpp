#pragma once

#include "partita/strategies/generators.hpp"

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

}  // namespace partita::schedules
