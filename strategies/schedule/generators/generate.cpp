#include "strategies/schedule/generators/generate.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace partita {

namespace {

const std::array generators = std::to_array<ScheduleGenerator>({
    {ScheduleKind::gpipe, "all forwards, then all backwards (Huang et al. 2019)", "any", schedules::gpipe},
    {ScheduleKind::one_f_one_b, "forwards and backwards alternate (Narayanan et al. 2019; Fan et al. 2021)", "any",
     schedules::one_f_one_b},
    {ScheduleKind::interleaved, "1f1b with v groups per stage (Narayanan et al. 2021)",
     "any; generated for the next multiple of p microbatches, the surplus is dropped", schedules::interleaved},
    {ScheduleKind::chimera, "two replicas in opposite directions (Li and Hoefler 2021)",
     "an even p; generated for the next multiple of p microbatches, the surplus is dropped", schedules::chimera},
    {ScheduleKind::zb_h1, "backward-filter fills the bubble, in the memory of 1f1b (Qi et al. 2023)", "any",
     schedules::zb_h1},
    {ScheduleKind::zb_h2, "as zb-h1, with up to 2p-1 microbatches in flight (Qi et al. 2023)", "any", schedules::zb_h2},
    {ScheduleKind::zb_1p, "arranged by the given times within the memory of p microbatches (Qi et al. 2023)",
     "any; --memory-limit of 1 or more", schedules::zb_1p},
    {ScheduleKind::zb_2p, "as zb-1p, within the memory of 2p microbatches", "any; --memory-limit of 1 or more",
     schedules::zb_2p},
    {ScheduleKind::zb_v, "down the stages and up again, within the memory of p microbatches (Qi et al. 2024)",
     "any; --memory-limit of 1 or more", schedules::zb_v},
    {ScheduleKind::v_half, "as zb-v, in about half of 1f1b's memory (Qi et al. 2024)", "any", schedules::v_half},
    {ScheduleKind::v_min, "as zb-v, in about a third of 1f1b's memory (Qi et al. 2024)", "any", schedules::v_min},
    {ScheduleKind::dualpipe_v, "down the stages and up again, forwards overlap backwards (DeepSeek-AI 2025)",
     "any; generated for 2p microbatches or more, the surplus is dropped", schedules::dualpipe_v},
});

void check(const ScheduleRequest& request) {
  const ScheduleKind kind = request.kind;
  constexpr int most_stages = 1 << 14, most_microbatches = 1 << 16;
  const auto check_count = [](int count, int most, std::string_view what) {
    if (count < 1 || count > most) fail("the number of {1} is {0}; it must be 1 to {2}", count, what, most);
  };
  check_count(request.stages, most_stages, "stages");
  check_count(request.microbatches, most_microbatches, "microbatches");
  check_count(request.groups_per_stage, most_stages, "groups per stage");
  if (const int usual = default_groups_per_stage(kind); request.groups_per_stage != usual && !any_groups(kind))
    fail("the schedule '{}' has {} {} per stage, not {}; 'interleaved' takes any number", name(kind), usual,
         usual == 1 ? "group" : "groups", request.groups_per_stage);
  constexpr std::int64_t most_actions = std::int64_t{1} << 26;
  if (std::int64_t{request.stages} * request.microbatches * request.groups_per_stage > most_actions)
    fail("a schedule of {} stages, {} microbatches and {} groups per stage has more than {} forwards", request.stages,
         request.microbatches, request.groups_per_stage, most_actions);
  if (kind == ScheduleKind::chimera && request.stages % 2 != 0)
    fail(
        "the schedule 'chimera' needs an even number of stages, not {}: only then do the two directions fill each "
        "other's bubbles",
        request.stages);
  check_numbers(request);
}

}  // namespace

void check_numbers(const ScheduleRequest& request) {
  for (const double time : {request.times.forward, request.times.backward_data, request.times.backward_filter})
    if (!(time > 0) || !std::isfinite(time)) fail("the time of an action is {}; it must be more than 0", time);
  if (!(request.transfer >= 0) || !std::isfinite(request.transfer))
    fail("the time of a transfer is {}; it must be 0 or more", request.transfer);
  if (!(request.filter_memory >= 0 && request.filter_memory <= 1))
    fail("the share of activations kept for backward-filter is {}; it must be 0 to 1", request.filter_memory);
  if (!(request.memory_limit >= 0))
    fail("the memory limit is {}; it must be 0 (the kind's own limit) or more", request.memory_limit);
}

std::span<const ScheduleGenerator> schedule_generators() { return generators; }

const ScheduleGenerator& schedule_generator(ScheduleKind kind) {
  const auto found =
      std::find_if(generators.begin(), generators.end(), [&](const auto& generator) { return generator.kind == kind; });
  if (found == generators.end())
    fail("the schedule '{}' is one microbatch on one stage; name another kind", name(kind));
  return *found;
}

Schedule generate(const ScheduleRequest& request) {
  const ScheduleGenerator& generator = schedule_generator(request.kind);
  ScheduleRequest whole = request;
  if (whole.groups_per_stage == 0) whole.groups_per_stage = default_groups_per_stage(request.kind);
  check(whole);
  return generator.generate(whole);
}

namespace schedules {

Schedule first_microbatches(Schedule schedule, int count) {
  for (auto& list : schedule.stages)
    std::erase_if(list, [&](const Action& action) { return action.microbatch >= count; });
  return schedule;
}

Best::Best(const ScheduleRequest& request, int groups)
    : graph_(groups), times_(equal_times(groups, groups / request.stages, request.times, request.transfer)) {}

void Best::offer(Schedule schedule) {
  const double cost = simulate(schedule, graph_, times_).cost;
  if (!best_.stages.empty() && cost >= cost_) return;
  cost_ = cost;
  best_ = std::move(schedule);
}

Schedule Best::take() { return std::move(best_); }

}  // namespace schedules
}  // namespace partita
