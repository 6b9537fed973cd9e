#include "strategies/schedule/stuck.hpp"

#include "partita/base/error.hpp"

#include <algorithm>

namespace partita {

std::string draw_heads(const Schedule& schedule, const Heads& heads) {
  constexpr std::size_t around = 4;
  std::string text;
  for (std::size_t stage = 0; stage < schedule.stages.size(); ++stage) {
    const auto& actions = schedule.stages[stage];
    const std::size_t head = heads[stage], first = head > around ? head - around : 0;
    text += fmt::format("\n  stage {}:{}", stage, first > 0 ? " ..." : "");
    const std::size_t end = std::min(actions.size(), head + around + 1);
    for (std::size_t i = first; i < end; ++i)
      text += i == head ? fmt::format(" [{}]", actions[i].print()) : fmt::format(" {}", actions[i].print());
    if (end < actions.size()) text += " ...";
    if (head == actions.size()) text += " (done)";
  }
  return text;
}

std::pair<int, std::size_t> find_action(const Schedule& schedule, const Action& action) {
  for (std::size_t stage = 0; stage < schedule.stages.size(); ++stage) {
    const auto& actions = schedule.stages[stage];
    if (const auto found = std::find(actions.begin(), actions.end(), action); found != actions.end())
      return {static_cast<int>(stage), static_cast<std::size_t>(found - actions.begin())};
  }
  return {-1, 0};
}

namespace {

std::string source(const Schedule& schedule, const Heads& heads, const Wait& wait) {
  const auto stage = static_cast<std::size_t>(wait.stage);
  return schedule.source(stage, heads[stage]);
}

}  // namespace

void fail_circle(const Schedule& schedule, const Heads& heads, const std::vector<Wait>& waits) {
  const std::string where = source(schedule, heads, waits[0]);
  if (waits.size() == 1)
    fail("{}stage {}: {} comes before {}, which it needs{}", where, waits[0].stage, waits[0].at.print(),
         waits[0].needed.print(), draw_heads(schedule, heads));
  std::string text;
  for (const auto& [stage, at, needed] : waits)
    text += fmt::format("{}stage {} at {} for {}", text.empty() ? "" : ", ", stage, at.print(), needed.print());
  fail("{}the stages wait for each other: {}{}", where, text, draw_heads(schedule, heads));
}

void fail_absent(const Schedule& schedule, const Heads& heads, const Wait& wait) {
  fail("{}stage {}: {} needs {}, which no stage does{}", source(schedule, heads, wait), wait.stage, wait.at.print(),
       wait.needed.print(), draw_heads(schedule, heads));
}

}  // namespace partita
