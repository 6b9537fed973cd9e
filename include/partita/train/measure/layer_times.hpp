#pragma once

#include "partita/comm/communicator.hpp"
#include "partita/strategies/machine/kernel_times.hpp"
#include "partita/strategies/plan/plan.hpp"

#include <string>
#include <vector>

namespace partita {

/// How local work is measured.
struct MeasureOptions {
  std::string backend = "auto";
  int threads = 1;
  std::string kernel_folder{};  ///< where measured choices of kernels are kept; "": by rule
  int most = 15;                ///< runs at most, and
  double budget = 10;  ///< seconds after which no further run begins, half of them with backward in halves; three
                       ///< runs of either kind are made at least
};

/// "N threads on PROCESSOR": whose times these are, and the name of the machine that they belong to.
std::string place_of_times(const MeasureOptions& options);
/// The backend that computes in this type: whose times they are on that place.
std::string backend_of_times(const MeasureOptions& options, DType dtype);

/// Rank 0's times on every rank. Collective.
KernelTimes broadcast_times(const KernelTimes& times, Communicator& world);

/// What rank `rank` of a plan computes, layer by layer, the median of several runs, of those that were not disturbed (see undisturbed()):
/// the executor runs its part alone, a group a layer, in the order of the plan's schedule, of its timed_microbatches, and nothing is sent.
/// It holds what these hold. All ranks of `world` measure at the same time, whatever each of them measures, since cores share caches and
/// memory. Where `known` has all, of such loops, nothing is run, and what it has stays as it is; all ranks return what any of them found,
/// `united`. Collective over `world`.
KernelTimes measure_layers(const Plan& plan, int rank, const MeasureOptions& options, const KernelTimes& known,
                           Communicator& world);

/// What the ranks found, each `mine`; where several measured the same, the slowest one's: ranks wait for each other, and no two cores are
/// alike. Collective over `world`.
KernelTimes united(const KernelTimes& mine, Communicator& world);

/// Ranks of a plan that have to be measured so that all is known that its price depends on: of the representatives of every
/// stage's grid those that compute something that neither `known` has nor one before them computes.
std::vector<int> ranks_to_measure(const Plan& plan, const KernelTimes& known);

/// Measures these, as measure_layers does, dealt out over the ranks of `world`, of which there may be fewer or more; all of them
/// compute at any time. Collective over `world`, whose ranks know the same.
KernelTimes measure_plan(const Plan& plan, const MeasureOptions& options, const KernelTimes& known,
                         Communicator& world);

}  // namespace partita
