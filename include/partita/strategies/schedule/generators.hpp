#pragma once

#include "partita/strategies/schedule/simulate.hpp"

#include <span>

namespace partita {

/// What a schedule is generated for.
struct ScheduleRequest {
  std::string kind = "1f1b";
  int stages = 1;
  int microbatches = 1;
  int groups_per_stage = 0;  ///< 0: what the kind takes by default
  GroupTimes times;          ///< of a stage and a microbatch; the heuristics arrange by them
  double transfer = 0;
  double memory_limit = 0;   ///< of a stage; 0: what the kind says. One microbatch of a stage's activations is 1
  double filter_memory = 0;  ///< what a stage keeps of it from backward-data to backward-filter
  bool operator==(const ScheduleRequest&) const = default;
};

/// One way to arrange a pipeline.
struct ScheduleKind {
  std::string name;
  std::string what;          ///< one line, with its source
  std::string constraints;   ///< and what happens beyond them
  int groups_per_stage = 1;  ///< by default
  bool any_groups = false;   ///< another number may be asked for
  Schedule (*generate)(const ScheduleRequest&) = nullptr;
};

/// All kinds, by name.
std::span<const ScheduleKind> schedule_kinds();
/// Throws Error with the nearest name.
const ScheduleKind& schedule_kind(const std::string& name);

/// The stage that a kind gives a group of layers to, of its first replica.
int stage_of_group(const std::string& kind, int group, int stages);

/// Throws Error for times, a transfer or memory that cannot be.
void check_numbers(const ScheduleRequest& request);

/// Generates: forwards and backwards alone, in an order that check_schedule accepts. Throws Error for an unknown kind, for
/// numbers below 1 and for what the kind refuses.
Schedule generate(const ScheduleRequest& request);

}  // namespace partita
