#pragma once

#include "strategies/schedule/dependencies.hpp"

namespace partita {

/// The position of every stage: the index of its next action.
using Heads = std::vector<std::size_t>;

/// What a stage waits for.
struct Wait {
  int stage = 0;
  Action at, needed;
};

/// Returns lines to append to a message: every stage's list around its next action, which is in brackets.
std::string draw_heads(const Schedule& schedule, const Heads& heads);

/// Returns the stage and the position of an action; (-1, 0) if no stage has it.
std::pair<int, std::size_t> find_action(const Schedule& schedule, const Action& action);

[[noreturn]] void fail_circle(const Schedule& schedule, const Heads& heads, const std::vector<Wait>& waits);
[[noreturn]] void fail_absent(const Schedule& schedule, const Heads& heads, const Wait& wait);

/// Throws the Error for a schedule whose stages cannot continue. Follows the chain of waiting stages from the first
/// one, until it reaches an action that no stage has, or stages that wait for each other. `wait(stage)` returns what a
/// stage waits for.
template <class WaitOf>
[[noreturn]] void fail_stuck(const Schedule& schedule, const Heads& heads, WaitOf&& wait) {
  int stage = 0;
  while (heads[stage] == schedule.stages[stage].size()) ++stage;
  for (std::vector<Wait> waits;;) {
    for (auto first = waits.begin(); first != waits.end(); ++first)
      if (first->stage == stage) fail_circle(schedule, heads, {first, waits.end()});
    waits.push_back(wait(stage));
    stage = find_action(schedule, waits.back().needed).first;
    if (stage < 0) fail_absent(schedule, heads, waits.back());
  }
}

/// Runs all stages as far as they can. advance(stage) takes the stage's next step, or returns false if that has to wait
/// for another stage. Throws as fail_stuck() does if some stage does not reach its end.
template <class Advance, class WaitOf>
void run_all_stages(const Schedule& schedule, const Heads& heads, Advance&& advance, WaitOf&& wait) {
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t stage = 0; stage < heads.size(); ++stage)
      while (advance(stage)) moved = true;
  }
  for (std::size_t stage = 0; stage < heads.size(); ++stage)
    if (heads[stage] < schedule.stages[stage].size()) fail_stuck(schedule, heads, wait);
}

}  // namespace partita
