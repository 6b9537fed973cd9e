// The V-shaped zero-bubble schedule, arranged by the times of its actions. Whenever a stage is free, it starts an
// action that can begin: backward-data before forwards, the upper group before the lower. Backward-filters run if
// nothing else can.
#include "partita/base/error.hpp"
#include "strategies/schedule/generators/generate.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <queue>

namespace partita::schedules {

namespace {

using Kind = Action::Kind;

/// The variants that the search tries.
struct GreedyOptions {
  int reserve = 0;        ///< activations that the lower group leaves free for the upper one
  bool in_turns = false;  ///< after a backward-data, prefer a forward if one is ready
  double patience = 0;    ///< part of a backward-filter that must fit before the next arrival, for it to begin
};

class Greedy {
 public:
  Greedy(const ScheduleRequest& request, double limit, GreedyOptions options)
      : request_(request),
        limit_(limit),
        options_(options),
        times_(equal_times(2 * request.stages, 2, request.times, 0)),
        stages_(static_cast<std::size_t>(request.stages)),
        arrivals_(request) {}

  /// Returns nothing if the lower groups' activations leave no room for the upper ones'.
  std::optional<Schedule> run() && {
    for (int i = 0; i < request_.stages; ++i) wake(0, i);
    for (; !wakes_.empty(); wakes_.pop()) {
      const auto [now, i] = wakes_.top();
      if (at(i).free > now) continue;
      now_ = now;
      if (const auto action = choose(i)) perform(i, *action);
    }
    Schedule schedule{"zb-v", {}};
    for (auto& stage : stages_) {
      if (static_cast<int>(stage.list.size()) < 6 * request_.microbatches) return std::nullopt;
      schedule.stages.push_back(std::move(stage.list));
    }
    return schedule;
  }

 private:
  struct Stage {
    std::vector<Action> list;
    std::array<int, 2> forwards{}, backwards{}, filters{};  // of the lower and the upper group
    double free = 0, memory = 0;
  };

  Stage& at(int stage) { return stages_[stage]; }
  int group(int stage, std::size_t upper) const { return upper != 0 ? 2 * request_.stages - 1 - stage : stage; }
  void wake(double time, int stage) {
    if (stage >= 0 && stage < request_.stages) wakes_.emplace(time, stage);
  }

  std::optional<Action> next_forward(int i, std::size_t upper) {
    Stage& stage = at(i);
    const double left = upper != 0 ? 0 : std::min<double>(options_.reserve, limit_ - 1);
    if (stage.forwards[upper] == request_.microbatches || stage.memory + 1 > limit_ - left + 1e-9) return std::nullopt;
    return Action{Kind::forward, group(i, upper), stage.forwards[upper]};
  }
  std::optional<Action> next_backward(int i, std::size_t upper) {
    Stage& stage = at(i);
    if (stage.backwards[upper] == stage.forwards[upper]) return std::nullopt;
    return Action{Kind::backward_data, group(i, upper), stage.backwards[upper]};
  }

  /// Returns the first action of the upper and then the lower group that can begin now. Remembers the next arrival in
  /// soon_.
  std::optional<Action> ready(std::optional<Action> (Greedy::*next)(int, std::size_t), int i) {
    for (const std::size_t upper : {1U, 0U}) {
      const auto action = (this->*next)(i, upper);
      if (!action) continue;
      const auto there = arrivals_.of(*action);
      if (there && *there <= now_ * (1 + 1e-12)) return action;
      if (there) soon_ = std::min(soon_, *there);
    }
    return std::nullopt;
  }

  std::optional<Action> choose(int i) {
    soon_ = std::numeric_limits<double>::infinity();
    const auto backward = ready(&Greedy::next_backward, i), forward = ready(&Greedy::next_forward, i);
    Stage& stage = at(i);
    const bool turn = options_.in_turns && !stage.list.empty() && stage.list.back().kind == Kind::backward_data;
    if (backward && !(turn && forward)) return backward;
    if (forward) return forward;
    for (const std::size_t upper : {1U, 0U}) {
      if (stage.filters[upper] == stage.backwards[upper]) continue;
      const Action filter{Kind::backward_filter, group(i, upper), stage.filters[upper]};
      if (soon_ - now_ < options_.patience * times_.of(filter)) {
        wake(soon_, i);
        return std::nullopt;
      }
      return filter;
    }
    if (soon_ < std::numeric_limits<double>::infinity()) wake(soon_, i);
    return std::nullopt;
  }

  void perform(int i, const Action& action) {
    Stage& stage = at(i);
    const std::size_t upper = action.group >= request_.stages ? 1 : 0;
    stage.list.push_back(action);
    stage.free = now_ + times_.of(action);
    if (action.kind == Kind::forward) {
      ++stage.forwards[upper];
      stage.memory += 1;
    } else if (action.kind == Kind::backward_data) {
      ++stage.backwards[upper];
      stage.memory -= 1 - request_.filter_memory;
    } else {
      ++stage.filters[upper];
      stage.memory -= request_.filter_memory;
    }
    wake(stage.free, i);
    if (action.kind == Kind::backward_filter) return;
    arrivals_.end(action, stage.free);
    for (const int beside : {i - 1, i + 1}) wake(stage.free + request_.transfer, beside);
  }

  const ScheduleRequest& request_;
  double limit_;  // in activations of a group, which is half of a stage
  GreedyOptions options_;
  ScheduleTimes times_;
  std::vector<Stage> stages_;
  Arrivals arrivals_;
  using Wake = std::pair<double, int>;
  std::priority_queue<Wake, std::vector<Wake>, std::greater<>> wakes_;
  double now_ = 0, soon_ = 0;
};

}  // namespace

Schedule zb_v(const ScheduleRequest& request) {
  const double limit = request.memory_limit > 0 ? request.memory_limit : request.stages;
  if (limit < 1)
    fail("the schedule 'zb-v' has a memory limit of {}; one microbatch of both groups of a stage needs 1", limit);
  Best best(request, 2 * request.stages);
  for (const int reserve : {0, 1, 2})
    for (const bool in_turns : {false, true})
      for (const double patience : {0.0, 0.3, 0.6})
        if (auto schedule = Greedy(request, 2 * limit, {reserve, in_turns, patience}).run())
          best.offer(std::move(*schedule));
  Schedule schedule = best.take();
  if (schedule.stages.empty()) fail("the schedule 'zb-v' has no arrangement for {} stages", request.stages);
  return schedule;
}

}  // namespace partita::schedules
