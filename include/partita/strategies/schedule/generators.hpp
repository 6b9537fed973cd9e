#pragma once

#include "partita/strategies/declare/schedule_kind.hpp"
#include "partita/strategies/schedule/simulate.hpp"

#include <span>
#include <string_view>

namespace partita {

/// The parameters of a schedule to be generated.
struct ScheduleRequest {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
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

/// A generator of schedules of one kind.
struct ScheduleGenerator {
  ScheduleKind kind;
  std::string_view what;         ///< one line, with its source
  std::string_view constraints;  ///< valid numbers, and what happens for others
  Schedule (*generate)(const ScheduleRequest&) = nullptr;
};

/// Returns the generators of all kinds but ScheduleKind::single.
std::span<const ScheduleGenerator> schedule_generators();
/// Returns the generator of one kind. Throws Error for ScheduleKind::single.
const ScheduleGenerator& schedule_generator(ScheduleKind kind);

/// Throws Error for invalid times, transfer time or memory.
void check_numbers(const ScheduleRequest& request);

/// Generates a schedule. It has only forward and backward actions, in an order that check_schedule accepts. Throws
/// Error for ScheduleKind::single, for numbers below 1 and for numbers that the kind does not support.
Schedule generate(const ScheduleRequest& request);

}  // namespace partita
