#include "generate.hpp"

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
        forward_ends_(2 * schedule.stages.size(),
                      std::vector<double>(static_cast<std::size_t>(request.microbatches), -1)),
        backward_ends_(forward_ends_) {}

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

  /// When what an action needs is there; below 0 if that is not known yet.
  double arrival(const Action& a) const {
    const bool forward = a.kind == Kind::forward, own = !forward && a.group == 2 * request_.stages - 1;
    if (forward && a.group == 0) return 0;
    const int from = own ? a.group : forward ? a.group - 1 : a.group + 1;
    const auto& ends = forward || own ? forward_ends_ : backward_ends_;
    const double end = ends[static_cast<std::size_t>(from)][static_cast<std::size_t>(a.microbatch)];
    if (end < 0) return end;
    return end + (v_stage(from, request_.stages) == v_stage(a.group, request_.stages) ? 0 : request_.transfer);
  }

  bool advance(std::size_t i) {
    Stage& stage = stages_[i];
    const auto& actions = schedule_.stages[i];
    while (stage.head < actions.size() && actions[stage.head].kind == Kind::backward_filter) ++stage.head;
    if (stage.head == actions.size()) return false;
    const Action& a = actions[stage.head];
    const double there = arrival(a);
    if (there < 0) return false;
    const bool forward = a.kind == Kind::forward;
    const double one = times_.of({Kind::backward_filter, a.group});
    while (stage.now + one <= there * (1 + 1e-12) && filter(stage)) continue;
    while (forward && stage.memory + 1 > limit_ * (1 + 1e-12) && filter(stage)) continue;
    stage.now = std::max(stage.now, there) + times_.of(a);
    stage.memory += forward ? 1 : request_.filter_memory - 1;
    auto& ends = forward ? forward_ends_ : backward_ends_;
    ends[static_cast<std::size_t>(a.group)][static_cast<std::size_t>(a.microbatch)] = stage.now;
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
  std::vector<std::vector<double>> forward_ends_, backward_ends_;  // by group and microbatch
};

}  // namespace

Schedule refilled(const Schedule& schedule, const ScheduleRequest& request, double limit) {
  return Refill(schedule, request, limit).run();
}

}  // namespace partita::schedules
