#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace partita {

/// How the microbatches of a step are arranged on the stages of a pipeline.
enum class ScheduleKind : std::uint8_t {
  single,       ///< "single": one microbatch on one stage; no pipeline
  gpipe,        ///< "gpipe": all forwards, then all backwards (Huang et al. 2019)
  one_f_one_b,  ///< "1f1b": forwards and backwards in turns (Narayanan et al. 2019; Fan et al. 2021)
  interleaved,  ///< "interleaved": 1f1b with several groups per stage (Narayanan et al. 2021)
  chimera,      ///< "chimera": two replicas in opposite directions (Li and Hoefler 2021)
  zb_h1,        ///< "zb-h1": backward-filter fills the bubble, in the memory of 1f1b (Qi et al. 2023)
  zb_h2,        ///< "zb-h2": zb-h1 with up to 2p-1 microbatches in flight (Qi et al. 2023)
  zb_1p,        ///< "zb-1p": scheduled from the given times, with at most p microbatches in memory (Qi et al. 2023)
  zb_2p,        ///< "zb-2p": zb-1p with at most 2p microbatches in memory (Qi et al. 2023)
  zb_v,         ///< "zb-v": groups go from the first stage to the last and back, with at most p microbatches in
                ///< memory (Qi et al. 2024)
  v_half,       ///< "v-half": zb-v with about half of 1f1b's memory (Qi et al. 2024)
  v_min,        ///< "v-min": zb-v with about a third of 1f1b's memory (Qi et al. 2024)
  dualpipe_v,   ///< "dualpipe-v": there and back as zb-v, and forwards overlap with backwards (DeepSeek-AI 2025)
};

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
