// Schedules whose groups go down the stages and up again, two per stage.
#include "partita/base/error.hpp"
#include "strategies/schedule/generators/generate.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>

namespace partita::schedules {

Arrivals::Arrivals(const ScheduleRequest& request)
    : stages_(request.stages),
      transfer_(request.transfer),
      forward_ends_(static_cast<std::size_t>(2 * request.stages),
                    std::vector<double>(static_cast<std::size_t>(request.microbatches), -1)),
      backward_ends_(forward_ends_) {}

void Arrivals::end(const Action& action, double time) {
  auto& ends = action.kind == Action::Kind::forward ? forward_ends_ : backward_ends_;
  ends[action.group][action.microbatch] = time;
}

std::optional<double> Arrivals::of(const Action& action) const {
  const bool forward = action.kind == Action::Kind::forward, own = !forward && action.group == 2 * stages_ - 1;
  if (forward && action.group == 0) return 0;
  const int from = own ? action.group : forward ? action.group - 1 : action.group + 1;
  const auto& ends = forward || own ? forward_ends_ : backward_ends_;
  const double end = ends[from][action.microbatch];
  if (end < 0) return std::nullopt;
  return end + (v_stage(from, stages_) == v_stage(action.group, stages_) ? 0 : transfer_);
}

namespace {

using Kind = Action::Kind;

/// A building block: the times of one microbatch's actions, in units in which every action takes 1. It repeats every 6
/// units, since a stage has 6 actions per microbatch (Qi et al. 2024).
class Block {
 public:
  /// Makes a block. `ways` are the units from one stage to the next: down and up forward, down and up backward. `turns`
  /// are the units from the end of one way to the beginning of the next. Returns nothing if two actions of a stage
  /// would coincide.
  static std::optional<Block> make(int stages, std::array<int, 4> ways, std::array<int, 3> turns) {
    Block block(stages);
    int time = 0;
    for (int way = 0; way < 4; ++way) {
      for (int i = 0; i < stages; ++i) {
        const int group = way < 2 ? way * stages + i : (4 - way) * stages - 1 - i;
        block.times_.push_back({time, {way < 2 ? Kind::forward : Kind::backward_data, group}});
        if (i + 1 < stages) time += ways[way];
      }
      if (way < 3) time += turns[way];
    }
    if (!block.add_filters()) return std::nullopt;
    return block;
  }

  Schedule repeat(int microbatches) const {
    struct Placed {
      int time;
      Action action;
    };
    std::vector<std::vector<Placed>> stages(static_cast<std::size_t>(stages_));
    for (int m = 0; m < microbatches; ++m)
      for (const auto& [time, action] : times_)
        stages[v_stage(action.group, stages_)].push_back({time + period * m, {action.kind, action.group, m}});
    Schedule schedule;
    for (auto& placed : stages) {
      std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.time < b.time; });
      auto& list = schedule.stages.emplace_back();
      for (const auto& each : placed) list.push_back(each.action);
    }
    return schedule;
  }

 private:
  static constexpr int period = 6;
  struct Timed {
    int time;
    Action action;
  };

  explicit Block(int stages) : stages_(stages) {}

  /// Places backward-filters in free units after their backward-data.
  bool add_filters() {
    std::vector<std::array<bool, period>> taken(static_cast<std::size_t>(stages_), std::array<bool, period>{});
    const auto unit = [&](int time, int group) -> bool& { return taken[v_stage(group, stages_)][time % period]; };
    for (const auto& [time, action] : times_) {
      if (unit(time, action.group)) return false;
      unit(time, action.group) = true;
    }
    const std::size_t count = times_.size();
    for (std::size_t i = count / 2; i < count; ++i) {
      const int group = times_[i].action.group;
      int time = times_[i].time + 1;
      while (unit(time, group)) ++time;
      unit(time, group) = true;
      times_.push_back({time, {Kind::backward_filter, group}});
    }
    return true;
  }

  int stages_;
  std::vector<Timed> times_;  // forwards, backwards, filters
};

/// Returns the block with the shortest turns.
std::optional<Block> shortest(int stages, std::array<int, 4> ways) {
  constexpr int longest = 7;
  for (int sum = 3; sum <= 3 * longest; ++sum)
    for (int a = 1; a <= longest; ++a)
      for (int b = 1; b <= longest; ++b)
        if (const int c = sum - a - b; c >= 1 && c <= longest)
          if (auto block = Block::make(stages, ways, {a, b, c})) return block;
  return std::nullopt;
}

Schedule from_blocks(const ScheduleRequest& request, const char* name, std::span<const std::array<int, 4>> ways) {
  Best best(request, 2 * request.stages);
  const std::vector<GroupMemory> memory(static_cast<std::size_t>(2 * request.stages), {1, request.filter_memory, 0});
  for (const auto& way : ways) {
    const auto block = shortest(request.stages, way);
    if (!block) continue;
    Schedule schedule = block->repeat(request.microbatches);
    const auto peaks = peak_memory(schedule, memory);
    best.offer(refilled(schedule, request, *std::max_element(peaks.begin(), peaks.end())));
    best.offer(std::move(schedule));
  }
  Schedule schedule = best.take();
  if (schedule.stages.empty()) fail("the schedule '{}' has no building block for {} stages", name, request.stages);
  schedule.kind = name;
  return schedule;
}

}  // namespace

Schedule v_half(const ScheduleRequest& request) {
  constexpr std::array<std::array<int, 4>, 4> ways{{{2, 1, 2, 1}, {1, 2, 1, 2}, {1, 1, 2, 2}, {2, 2, 1, 1}}};
  return from_blocks(request, "v-half", ways);
}

Schedule v_min(const ScheduleRequest& request) {
  constexpr std::array<std::array<int, 4>, 1> ways{{{1, 1, 1, 1}}};
  return from_blocks(request, "v-min", ways);
}

/// DeepSeek-AI's DualPipeV: eight phases with counts that depend on the stage. Where the original runs a forward and a
/// backward together, the forward comes first here.
Schedule dualpipe_v(const ScheduleRequest& request) {
  const int p = request.stages, m = std::max(request.microbatches, 2 * p);
  Schedule schedule{"dualpipe-v", {}};
  for (int i = 0; i < p; ++i) {
    auto& list = schedule.stages.emplace_back();
    const std::array groups{i, 2 * p - 1 - i};
    std::array<int, 2> forwards{}, backwards{};
    std::deque<Action> pending;  // backward-filters
    const auto forward = [&](std::size_t way) { list.push_back({Kind::forward, groups[way], forwards[way]++}); };
    const auto backward = [&](std::size_t way) { list.push_back({Kind::backward, groups[way], backwards[way]++}); };
    const auto data = [&](std::size_t way) {
      list.push_back({Kind::backward_data, groups[way], backwards[way]});
      pending.push_back({Kind::backward_filter, groups[way], backwards[way]++});
    };
    const auto filter = [&] {
      list.push_back(pending.front());
      pending.pop_front();
    };
    const auto times = [](int count, auto&& phase) {
      for (int k = 0; k < count; ++k) phase(k);
    };
    times(2 * (p - i - 1), [&](int) { forward(0); });
    times(i + 1, [&](int) { forward(0), forward(1); });
    times(p - i - 1, [&](int) { data(1), filter(), forward(1); });
    times(m - 2 * p + i + 1, [&](int) { forward(0), backward(1), forward(1), backward(0); });
    times(p - i - 1, [&](int) { backward(1), forward(1), backward(0); });
    times(i + 1, [&](int k) {  // the second half postpones its filters
      const int half = (i + 1) / 2;
      k > half || (k == half && i % 2 == 1) ? data(1) : backward(1);
      k >= half ? data(0) : backward(0);
    });
    times(p - i - 1, [&](int) { filter(), data(0); });
    while (!pending.empty()) filter();
  }
  return first_microbatches(std::move(schedule), request.microbatches);
}

}  // namespace partita::schedules
