#pragma once

#include "partita/strategies/schedule/generators.hpp"

#include <optional>

namespace partita::schedules {

// One function per kind, named like it. All return only forwards and backwards. If a generator needs a certain number
// of microbatches, the number is rounded up and the surplus dropped (first_microbatches). The rest is still a valid
// schedule, since no microbatch needs another.
#define PARTITA_GENERATOR(KIND, NAME, GROUPS, ANY) Schedule KIND(const ScheduleRequest& request);
PARTITA_SCHEDULE_KINDS(PARTITA_GENERATOR)
#undef PARTITA_GENERATOR

/// Returns the schedule without the microbatches from `count` on.
Schedule first_microbatches(Schedule schedule, int count);

/// Moves the backward-filters of a V-shaped schedule to where a stage would otherwise wait, or where there is no room
/// within `limit` (in activations of a group) for the next forward. The rest move to the end.
Schedule refilled(const Schedule& schedule, const ScheduleRequest& request, double limit);

/// Keeps the fastest of several schedules, the first among equals.
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

/// V-shaped schedules: the groups go down the stages and up again, two per stage.
inline int v_stage(int group, int stages) { return group < stages ? group : 2 * stages - 1 - group; }

/// The ends of the actions of a V-shaped schedule that are arranged so far, and from them the earliest starts of the
/// next ones.
class Arrivals {
 public:
  explicit Arrivals(const ScheduleRequest& request);
  /// Records the end of a forward or a backward-data.
  void end(const Action& action, double time);
  /// Returns the time when the inputs of a forward or backward-data are on its stage; nothing if that is not known yet.
  std::optional<double> of(const Action& action) const;

 private:
  int stages_;
  double transfer_;
  std::vector<std::vector<double>> forward_ends_, backward_ends_;  // by group and microbatch; below 0: not known
};

}  // namespace partita::schedules
