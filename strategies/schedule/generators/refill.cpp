#include "strategies/schedule/generators/generate.hpp"

#include <algorithm>
#include <deque>

namespace partita::schedules {

namespace {

using Kind = Action::Kind;

class Refill {
 public:
  Refill(const Schedule& schedule, const ScheduleRequest& request, double limit)
      : schedule_(schedule),
        request_(request),
        limit_(limit),
        times_(equal_times(2 * request.stages, 2, request.times, request.transfer)),
        stages_(schedule.stages.size()),
        arrivals_(request) {}

  Schedule run() && {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t i = 0; i < stages_.size(); ++i)
        while (advance(i)) moved = true;
    }
    Schedule result{schedule_.kind, {}};
    for (auto& stage : stages_) {
      while (filter(stage)) continue;
      result.stages.push_back(std::move(stage.list));
    }
    return result;
  }

 private:
  struct Stage {
    std::vector<Action> list;
    std::deque<Action> pending;
    std::size_t head = 0;
    double now = 0, memory = 0;
  };

  bool filter(Stage& stage) {
    if (stage.pending.empty()) return false;
    stage.now += times_.of(stage.pending.front());
    stage.memory -= request_.filter_memory;
    stage.list.push_back(stage.pending.front());
    stage.pending.pop_front();
    return true;
  }

  bool advance(std::size_t i) {
    Stage& stage = stages_[i];
    const auto& actions = schedule_.stages[i];
    while (stage.head < actions.size() && actions[stage.head].kind == Kind::backward_filter) ++stage.head;
    if (stage.head == actions.size()) return false;
    const Action& a = actions[stage.head];
    const auto there = arrivals_.of(a);
    if (!there) return false;
    const bool forward = a.kind == Kind::forward;
    const double one = times_.of({Kind::backward_filter, a.group});
    while (stage.now + one <= *there * (1 + 1e-12) && filter(stage)) continue;
    while (forward && stage.memory + 1 > limit_ * (1 + 1e-12) && filter(stage)) continue;
    stage.now = std::max(stage.now, *there) + times_.of(a);
    stage.memory += forward ? 1 : request_.filter_memory - 1;
    arrivals_.end(a, stage.now);
    if (!forward) stage.pending.push_back({Kind::backward_filter, a.group, a.microbatch});
    stage.list.push_back(a);
    ++stage.head;
    return true;
  }

  const Schedule& schedule_;
  const ScheduleRequest& request_;
  double limit_;
  ScheduleTimes times_;
  std::vector<Stage> stages_;
  Arrivals arrivals_;
};

}  // namespace

Schedule refilled(const Schedule& schedule, const ScheduleRequest& request, double limit) {
  return Refill(schedule, request, limit).run();
}

}  // namespace partita::schedules
