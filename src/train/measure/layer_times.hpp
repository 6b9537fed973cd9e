#pragma once

#include "partita/comm/communicator.hpp"
#include "partita/strategies/machine/kernel_times.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "src/train/measure/measure_options.hpp"

#include <string>
#include <vector>

namespace partita {

/// Returns "N threads on PROCESSOR", or the name of the device: the place that the times belong to. It is also the name
/// of the machine.
std::string place_of_times(const MeasureOptions& options);
/// Returns the name of the backend that computes in this type, which the times belong to as well.
std::string backend_of_times(const MeasureOptions& options, DType dtype);

/// Returns rank 0's times on every rank. Collective: every rank of `world` calls it.
KernelTimes broadcast_times(const KernelTimes& times, Communicator& world);

/// Measures the seconds that rank `rank` of a plan computes, layer by layer: medians over the undisturbed runs (see
/// undisturbed()).
/// The executor runs this rank's part alone, with one group per layer, in the order of the plan's schedule of its
/// timed_microbatches. It sends nothing, but holds in memory what these microbatches hold. All ranks of `world` measure
/// at the same time, each its own `rank`, since cores share caches and memory.
/// If `known` has all times for such loops, nothing is run. Its times are never replaced. All ranks return what any of
/// them found (see united()). Collective: every rank of `world` calls it.
KernelTimes measure_layers(const Plan& plan, int rank, const MeasureOptions& options, const KernelTimes& known,
                           Communicator& world);

/// Merges the times that each rank measured (`mine`). If several ranks measured the same work, the slowest rank's times
/// count, because ranks wait for each other and no two cores are equally fast. Collective: every rank of `world` calls
/// it.
KernelTimes united(const KernelTimes& mine, Communicator& world);

/// Returns the ranks of a plan that must be measured so that every time in its cost estimate is known. They are those
/// representatives of each stage's grid that compute some work which neither `known` nor an earlier representative
/// covers.
std::vector<int> ranks_to_measure(const Plan& plan, const KernelTimes& known);

/// Measures the ranks of ranks_to_measure(), as measure_layers() does. The ranks of `world`, which may be fewer or
/// more, share them out; every rank computes all the time. Collective: every rank of `world` calls it with equal
/// arguments.
KernelTimes measure_plan(const Plan& plan, const MeasureOptions& options, const KernelTimes& known,
                         Communicator& world);

}  // namespace partita
