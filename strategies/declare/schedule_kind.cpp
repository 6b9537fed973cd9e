#include "partita/strategies/declare/schedule_kind.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace partita {

namespace {

struct Traits {
  std::string_view name;
  int groups_per_stage = 1;
  bool any_groups = false;
};

Traits traits(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::single: return {"single"};
    case ScheduleKind::gpipe: return {"gpipe"};
    case ScheduleKind::one_f_one_b: return {"1f1b"};
    case ScheduleKind::interleaved: return {"interleaved", 2, true};
    case ScheduleKind::chimera: return {"chimera"};
    case ScheduleKind::zb_h1: return {"zb-h1"};
    case ScheduleKind::zb_h2: return {"zb-h2"};
    case ScheduleKind::zb_1p: return {"zb-1p"};
    case ScheduleKind::zb_2p: return {"zb-2p"};
    case ScheduleKind::zb_v: return {"zb-v", 2};
    case ScheduleKind::v_half: return {"v-half", 2};
    case ScheduleKind::v_min: return {"v-min", 2};
    case ScheduleKind::dualpipe_v: return {"dualpipe-v", 2};
  }
  broken("unknown schedule kind");
}

}  // namespace

std::span<const ScheduleKind> pipeline_kinds() {
  using enum ScheduleKind;
  static constexpr std::array kinds{gpipe, one_f_one_b, interleaved, chimera, zb_h1, zb_h2,
                                    zb_1p, zb_2p,       zb_v,        v_half,  v_min, dualpipe_v};
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
