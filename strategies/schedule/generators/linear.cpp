// Pipelines in which a microbatch passes the stages once from first to last, or v times around.
#include "strategies/schedule/generators/generate.hpp"

#include <algorithm>

namespace partita::schedules {

namespace {

using Kind = Action::Kind;

/// The actions of one stage with one group: appends the next forward, backward or filter to the list.
class Stage {
 public:
  Stage(int group, int microbatches) : group_(group), microbatches_(microbatches) {}

  bool forward() { return next(Kind::forward, forwards_); }
  bool backward(Kind kind) { return next(kind, backwards_); }
  bool filter() { return filters_ < backwards_ && next(Kind::backward_filter, filters_); }
  bool done() const { return backwards_ == microbatches_; }
  int pending() const { return backwards_ - filters_; }
  std::vector<Action> list;

 private:
  bool next(Kind kind, int& count) {
    if (count == microbatches_) return false;
    list.push_back({kind, group_, count++});
    return true;
  }
  int group_, microbatches_, forwards_ = 0, backwards_ = 0, filters_ = 0;
};

}  // namespace

/// F0 .. Fm-1, then B0 .. Bm-1.
Schedule gpipe(const ScheduleRequest& request) {
  Schedule schedule{"gpipe", {}};
  for (int i = 0; i < request.stages; ++i) {
    Stage stage(i, request.microbatches);
    while (stage.forward()) continue;
    while (stage.backward(Kind::backward)) continue;
    schedule.stages.push_back(std::move(stage.list));
  }
  return schedule;
}

/// p-i-1 forwards, then a forward and a backward alternate, then the rest.
Schedule one_f_one_b(const ScheduleRequest& request) {
  Schedule schedule{"1f1b", {}};
  for (int i = 0; i < request.stages; ++i) {
    Stage stage(i, request.microbatches);
    for (int warm_up = 0; warm_up < request.stages - i - 1; ++warm_up) stage.forward();
    while (!stage.done()) {
      stage.forward();
      stage.backward(Kind::backward);
    }
    schedule.stages.push_back(std::move(stage.list));
  }
  return schedule;
}

namespace {

/// Warm-up forwards; then repeatedly backward-data, a backward-filter if more than `lag` of them are pending, forward.
std::vector<Action> zero_bubble(int group, int microbatches, int warm_up, int lag) {
  Stage stage(group, microbatches);
  for (int i = 0; i < warm_up; ++i) stage.forward();
  while (!stage.done()) {
    stage.backward(Kind::backward_data);
    if (stage.pending() > lag) stage.filter();
    stage.forward();
  }
  while (stage.filter()) continue;
  return std::move(stage.list);
}

}  // namespace

Schedule zb_h1(const ScheduleRequest& request) {
  Schedule schedule{"zb-h1", {}};
  for (int i = 0; i < request.stages; ++i)
    schedule.stages.push_back(zero_bubble(i, request.microbatches, request.stages - i, i));
  return schedule;
}

Schedule zb_h2(const ScheduleRequest& request) {
  Schedule schedule{"zb-h2", {}};
  for (int i = 0; i < request.stages; ++i)
    schedule.stages.push_back(zero_bubble(i, request.microbatches, 2 * (request.stages - i) - 1, 2 * i));
  return schedule;
}

namespace {

/// The k-th forward or backward of a stage: p microbatches pass through each of its v groups in turn.
Action interleaved_action(Kind kind, int k, int stage, int p, int v) {
  const int turn = k / p % v, microbatch = k / (p * v) * p + k % p;
  return {kind, (kind == Kind::forward ? turn : v - 1 - turn) * p + stage, microbatch};
}

}  // namespace

/// Narayanan et al. 2021: as 1f1b over p·v groups. Stage i has the groups i, p+i, 2p+i, ... and runs 2(p-i-1)+(v-1)p
/// warm-up forwards.
Schedule interleaved(const ScheduleRequest& request) {
  const int p = request.stages, v = request.groups_per_stage;
  const int whole = (request.microbatches + p - 1) / p * p, total = whole * v;
  Schedule schedule{"interleaved", {}};
  for (int i = 0; i < p; ++i) {
    auto& list = schedule.stages.emplace_back();
    int forwards = 0;
    const auto forward = [&] {
      if (forwards < total) list.push_back(interleaved_action(Kind::forward, forwards++, i, p, v));
    };
    for (int warm_up = 0; warm_up < 2 * (p - i - 1) + (v - 1) * p; ++warm_up) forward();
    for (int backwards = 0; backwards < total; ++backwards) {
      forward();
      list.push_back(interleaved_action(Kind::backward, backwards, i, p, v));
    }
  }
  return first_microbatches(std::move(schedule), request.microbatches);
}

/// Li and Hoefler 2021: two replicas of all groups, one from the first stage down, one from the last stage up. Each
/// takes half of every p microbatches. With actions of one unit, the j-th microbatch of a replica has its forward on
/// the replica's stage s at time s+2j and its backward at time 2p-1-s+2j. The next p microbatches follow 2p later. If p
/// is even, no two actions of a stage coincide.
Schedule chimera(const ScheduleRequest& request) {
  const int p = request.stages, half = p / 2, units = (request.microbatches + p - 1) / p;
  Schedule schedule{"chimera", {}};
  for (int i = 0; i < p; ++i) {
    std::vector<std::pair<int, Action>> timed;
    for (int replica = 0; replica < 2; ++replica)
      for (int j = 0; j < units * half; ++j) {
        const int s = replica == 0 ? i : p - 1 - i, shift = 2 * (j % half) + 2 * p * (j / half);
        timed.push_back({s + shift, {Kind::forward, s, 2 * j + replica, replica}});
        timed.push_back({2 * p - 1 - s + shift, {Kind::backward, s, 2 * j + replica, replica}});
      }
    std::sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    auto& list = schedule.stages.emplace_back();
    for (const auto& [time, action] : timed) list.push_back(action);
  }
  return first_microbatches(std::move(schedule), request.microbatches);
}

}  // namespace partita::schedules
