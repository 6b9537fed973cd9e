#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace partita {

/// The list of the kinds of pipelines: EACH(kind, name, groups, any). `name` stands in strategy files and on the
/// command line, `groups` is the number of groups of layers that a stage runs by default, `any` whether it may be
/// another one.
#define PARTITA_SCHEDULE_KINDS(EACH)                                                                              \
  EACH(gpipe, "gpipe", 1, false)            /* all forwards, then all backwards (Huang et al. 2019) */            \
  EACH(one_f_one_b, "1f1b", 1, false)       /* in turns (Narayanan et al. 2019; Fan et al. 2021) */               \
  EACH(interleaved, "interleaved", 2, true) /* 1f1b, several groups a stage (Narayanan et al. 2021) */            \
  EACH(chimera, "chimera", 1, false)        /* two replicas in opposite directions (Li and Hoefler 2021) */       \
  EACH(zb_h1, "zb-h1", 1, false)   /* backward-filter fills the bubble, in the memory of 1f1b (Qi et al. 2023) */ \
  EACH(zb_h2, "zb-h2", 1, false)   /* zb-h1 with up to 2p-1 microbatches in flight (Qi et al. 2023) */            \
  EACH(zb_1p, "zb-1p", 1, false)   /* from the given times, at most p microbatches in memory (Qi et al. 2023) */  \
  EACH(zb_2p, "zb-2p", 1, false)   /* zb-1p with at most 2p microbatches in memory (Qi et al. 2023) */            \
  EACH(zb_v, "zb-v", 2, false)     /* down the stages and back, at most p microbatches (Qi et al. 2024) */        \
  EACH(v_half, "v-half", 2, false) /* zb-v with about half of 1f1b's memory (Qi et al. 2024) */                   \
  EACH(v_min, "v-min", 2, false)   /* zb-v with about a third of 1f1b's memory (Qi et al. 2024) */                \
  EACH(dualpipe_v, "dualpipe-v", 2, false) /* down and back, forwards overlap with backwards (DeepSeek-AI 2025) */

/// How the microbatches of a step are arranged on the stages of a pipeline; `single`: one microbatch on one stage.
#define PARTITA_KIND(KIND, NAME, GROUPS, ANY) , KIND
enum class ScheduleKind : std::uint8_t { single PARTITA_SCHEDULE_KINDS(PARTITA_KIND) };
#undef PARTITA_KIND

/// All kinds but `single`.
std::span<const ScheduleKind> pipeline_kinds();
/// The kind's name in strategy files and on the command line, e.g. "1f1b".
std::string_view name(ScheduleKind kind);
/// The kind called `name`. Throws Error with the nearest name if there is none.
ScheduleKind parse_schedule_kind(std::string_view name);

/// How many groups of layers each stage runs, unless the strategy asks for another number.
int default_groups_per_stage(ScheduleKind kind);
/// True if the kind takes any number of groups per stage.
bool any_groups(ScheduleKind kind);
/// The stage (of the first replica) that runs a group of layers.
int stage_of_group(ScheduleKind kind, int group, int stages);

}  // namespace partita
