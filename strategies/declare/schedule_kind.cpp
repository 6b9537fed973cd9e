#include "partita/strategies/declare/schedule_kind.hpp"

#include "partita/base/error.hpp"

#include <string>
#include <vector>

namespace partita {

namespace {

/// What the list says of a kind.
struct Traits {
  std::string_view name;
  int groups_per_stage = 1;
  bool any_groups = false;
};

#define PARTITA_TRAITS(KIND, NAME, GROUPS, ANY) \
  , { NAME, GROUPS, ANY }
constexpr Traits all_traits[]{{"single"} PARTITA_SCHEDULE_KINDS(PARTITA_TRAITS)};  // by ScheduleKind
#undef PARTITA_TRAITS

const Traits& traits(ScheduleKind kind) { return all_traits[static_cast<std::size_t>(kind)]; }

}  // namespace

std::span<const ScheduleKind> pipeline_kinds() {
#define PARTITA_KIND(KIND, NAME, GROUPS, ANY) ScheduleKind::KIND,
  static constexpr ScheduleKind kinds[]{PARTITA_SCHEDULE_KINDS(PARTITA_KIND)};
#undef PARTITA_KIND
  return kinds;
}

std::string_view name(ScheduleKind kind) { return traits(kind).name; }

ScheduleKind parse_schedule_kind(std::string_view name) {
  if (name == partita::name(ScheduleKind::single)) return ScheduleKind::single;
  std::vector<std::string> names;
  for (const ScheduleKind kind : pipeline_kinds()) {
    if (partita::name(kind) == name) return kind;
    names.emplace_back(partita::name(kind));
  }
  fail("there is no schedule '{}'{}; there are {}", name, did_you_mean(name, names), quoted_list(names));
}

int default_groups_per_stage(ScheduleKind kind) { return traits(kind).groups_per_stage; }

bool any_groups(ScheduleKind kind) { return traits(kind).any_groups; }

int stage_of_group(ScheduleKind kind, int group, int stages) {
  const bool down = kind == ScheduleKind::interleaved || group < stages;
  return down ? group % stages : 2 * stages - 1 - group;
}

}  // namespace partita
