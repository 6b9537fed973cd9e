#pragma once

#include "partita/strategies/declare/schedule_kind.hpp"
#include "partita/strategies/schedule/simulate.hpp"

#include <span>
#include <string_view>

namespace partita {

/// What a schedule is generated for.
struct ScheduleRequest {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  int stages = 1;
  int microbatches = 1;
  int groups_per_stage = 0;  ///< 0: what the kind takes by default
  GroupTimes times;          ///< of a stage and a microbatch; the heuristics arrange by them
  double transfer = 0;
  double memory_limit = 0;   ///< of a stage; 0: what the kind says. One microbatch of a stage's activations is 1
  double filter_memory = 0;  ///< what a stage keeps of it from backward-data to backward-filter
  bool operator==(const ScheduleRequest&) const = default;
};

/// How the schedules of one kind are made.
struct ScheduleGenerator {
  ScheduleKind kind;
  std::string_view what;         ///< one line, with its source
  std::string_view constraints;  ///< on stages and microbatches, and what happens beyond them
  Schedule (*generate)(const ScheduleRequest&) = nullptr;
};

/// The generators of all kinds but ScheduleKind::single.
std::span<const ScheduleGenerator> schedule_generators();
/// The generator of one kind. Throws Error for ScheduleKind::single.
const ScheduleGenerator& schedule_generator(ScheduleKind kind);

/// Throws Error for times, a transfer or memory that cannot be.
void check_numbers(const ScheduleRequest& request);

/// Generates: forwards and backwards alone, in an order that check_schedule accepts. Throws Error for
/// ScheduleKind::single, for numbers below 1 and for what the kind refuses.
Schedule generate(const ScheduleRequest& request);

}  // namespace partita
