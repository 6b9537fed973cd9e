// Zero-bubble schedules arranged by the times of their actions within a memory limit. Each round has one backward-data
// per stage, from the last stage to the first, then one forward per stage, from the first to the last. Backward-filters
// that fit before one of these run before it. After the heuristic of Qi et al. 2023, section 3.1.
#include "partita/base/error.hpp"
#include "strategies/schedule/generators/generate.hpp"

#include <algorithm>
#include <cmath>

namespace partita::schedules {

namespace {

using Kind = Action::Kind;

/// The options that the search tries in both values.
struct SweepOptions {
  bool one_more = false;  ///< warm up with one forward more than fits before the first backward
  /// also run a backward-filter that is too long for a gap, on the stage whose bubble would be the largest
  bool by_bubble = false;
};

class Sweep {
 public:
  Sweep(const ScheduleRequest& request, double limit, SweepOptions options)
      : request_(request), limit_(limit), options_(options), stages_(static_cast<std::size_t>(request.stages)) {
    for (auto& stage : stages_) {
      stage.forward_ends.reserve(static_cast<std::size_t>(request.microbatches));
      stage.backward_ends.reserve(static_cast<std::size_t>(request.microbatches));
    }
  }

  Schedule run() && {
    warm_up();
    while (stages_.front().backwards() < request_.microbatches) {
      for (int i = request_.stages; i-- > 0;) backward(i);
      for (int i = 0; i < request_.stages; ++i) forward(i);
    }
    Schedule schedule;
    for (int i = 0; i < request_.stages; ++i) {
      while (filter(i)) continue;
      schedule.stages.push_back(std::move(at(i).list));
    }
    return schedule;
  }

 private:
  struct Stage {
    std::vector<Action> list;
    std::vector<double> forward_ends, backward_ends;  // by microbatch
    int filters = 0;
    double now = 0, bubble = 0, memory = 0;
    int forwards() const { return static_cast<int>(forward_ends.size()); }
    int backwards() const { return static_cast<int>(backward_ends.size()); }
  };

  Stage& at(int stage) { return stages_[stage]; }

  /// Runs the forwards before a stage's first backward: as many as fit in time, at least one more than on the next
  /// stage, and few enough that each stage before it can hold one more.
  void warm_up() {
    const auto& [f, b, w, reduce, step] = request_.times;
    const int p = request_.stages;
    std::vector<int> counts(stages_.size(), 0);
    for (int i = p, after = 0; i-- > 0;) {
      const double gap = (p - i) * f + (p - 1 - i) * (b + 2 * request_.transfer), fits = gap / f;
      const int many = static_cast<int>(options_.one_more ? std::ceil(fits - 1e-9) : std::floor(fits + 1e-9));
      const int held = std::max(1, static_cast<int>(limit_ + 1e-9) - i);
      after = std::min({std::max(many, after + 1), request_.microbatches, held});
      counts[i] = after;
    }
    for (int i = 0; i < p; ++i)
      for (int k = 0; k < counts[i]; ++k) forward(i);
  }

  bool filter(int i) {
    Stage& stage = at(i);
    if (stage.filters == stage.backwards()) return false;
    stage.list.push_back({Kind::backward_filter, i, stage.filters++});
    stage.now += request_.times.backward_filter;
    stage.memory -= request_.filter_memory;
    return true;
  }

  /// Runs the backward-filters that fit before an arrival at time `arrival`.
  void fill(int i, double arrival) {
    Stage& stage = at(i);
    while (stage.now + request_.times.backward_filter <= arrival * (1 + 1e-12) && filter(i)) continue;
    if (!options_.by_bubble || arrival <= stage.now) return;
    double largest = 0;
    for (const auto& other : stages_)
      if (&other != &stage) largest = std::max(largest, other.bubble);
    if (stage.bubble + arrival - stage.now > largest * (1 + 1e-12)) filter(i);
  }

  void forward(int i) {
    Stage& stage = at(i);
    const int next = stage.forwards();
    if (next == request_.microbatches || (i > 0 && at(i - 1).forwards() <= next)) return;
    while (full(stage) && filter(i)) continue;
    if (full(stage)) return;
    const double arrival = i == 0 ? 0 : at(i - 1).forward_ends[next] + request_.transfer;
    fill(i, arrival);
    const double start = std::max(stage.now, arrival);
    if (!stage.list.empty()) stage.bubble += start - stage.now;
    stage.list.push_back({Kind::forward, i, next});
    stage.now = start + request_.times.forward;
    stage.memory += 1;
    stage.forward_ends.push_back(stage.now);
  }

  bool full(const Stage& stage) const { return stage.memory + 1 > limit_ * (1 + 1e-12); }

  void backward(int i) {
    Stage& stage = at(i);
    const bool last = i == request_.stages - 1;
    const int next = stage.backwards();
    if (next >= stage.forwards() || (!last && at(i + 1).backwards() <= next)) return;
    const double arrival = last ? stage.forward_ends[next] : at(i + 1).backward_ends[next] + request_.transfer;
    fill(i, arrival);
    const double start = std::max(stage.now, arrival);
    stage.bubble += start - stage.now;
    stage.list.push_back({Kind::backward_data, i, next});
    stage.now = start + request_.times.backward_data;
    stage.memory -= 1 - request_.filter_memory;
    stage.backward_ends.push_back(stage.now);
  }

  const ScheduleRequest& request_;
  double limit_;
  SweepOptions options_;
  std::vector<Stage> stages_;
};

Schedule sweep(const ScheduleRequest& request, const char* name, int times_p) {
  const double limit = request.memory_limit > 0 ? request.memory_limit : times_p * request.stages;
  if (limit < 1) fail("the schedule '{}' has a memory limit of {}; one microbatch of a stage needs 1", name, limit);
  Best best(request, request.stages);
  for (const bool one_more : {false, true})
    for (const bool by_bubble : {false, true}) best.offer(Sweep(request, limit, {one_more, by_bubble}).run());
  Schedule schedule = best.take();
  schedule.kind = name;
  return schedule;
}

}  // namespace

Schedule zb_1p(const ScheduleRequest& request) { return sweep(request, "zb-1p", 1); }
Schedule zb_2p(const ScheduleRequest& request) { return sweep(request, "zb-2p", 2); }

}  // namespace partita::schedules
