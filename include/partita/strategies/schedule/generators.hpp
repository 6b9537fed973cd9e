#pragma once

#include "partita/strategies/schedule/simulate.hpp"

#include <span>

namespace partita {

/// The parameters of a schedule to be generated.
struct ScheduleRequest {
  std::string kind = "1f1b";
  int stages = 1;
  int microbatches = 1;
  int groups_per_stage = 0;  ///< 0: the kind's default
  GroupTimes times;          ///< per stage and microbatch; some generators arrange the actions by these times
  /// seconds, or other units as in `times`, from one stage to another
  double transfer = 0;
  double memory_limit = 0;   ///< per stage; 0: the kind's own limit. The activations of one microbatch on a stage are 1
  double filter_memory = 0;  ///< the part of these kept from backward_data to backward_filter
  bool operator==(const ScheduleRequest&) const = default;
};

/// A kind of pipeline schedule.
struct ScheduleKind {
  std::string name;
  std::string what;          ///< one line, with its source
  std::string constraints;   ///< valid numbers, and what happens for others
  int groups_per_stage = 1;  ///< the default
  bool any_groups = false;   ///< whether groups_per_stage can be changed
  Schedule (*generate)(const ScheduleRequest&) = nullptr;
};

/// Returns all kinds.
std::span<const ScheduleKind> schedule_kinds();
/// Returns the kind of this name. Throws Error with the nearest name if there is none.
const ScheduleKind& schedule_kind(const std::string& name);

/// Returns the stage that runs a group of layers in a schedule of this kind, for its first replica.
int stage_of_group(const std::string& kind, int group, int stages);

/// Throws Error for invalid times, transfer time or memory.
void check_numbers(const ScheduleRequest& request);

/// Generates a schedule. It has only forward and backward actions, in an order that check_schedule accepts. Throws
/// Error for an unknown kind, for numbers below 1 and for numbers that the kind does not support.
Schedule generate(const ScheduleRequest& request);

}  // namespace partita
