#pragma once

#include "partita/comm/communicator.hpp"
#include "partita/strategies/kernel_times.hpp"

#include <functional>

namespace partita {

/// How local work is measured.
struct MeasureOptions {
  std::string backend = "auto";
  int threads = 1;
  std::string kernel_folder{};  ///< where measured choices of kernels are kept; "": by rule
  int most = 15;                ///< runs at most, and
  double budget = 10;           ///< seconds after which no further run begins; three are made at least
};

/// "BACKEND with N threads on PROCESSOR": whose times these are.
std::string place_of_times(const MeasureOptions& options, DType dtype);

/// What rank `rank` of a plan computes, layer by layer, the median of several runs: the executor runs its part alone, a group a
/// layer, and nothing is sent. All ranks of `world` measure at the same time, whatever each of them measures, since cores share
/// caches and memory. Where `known` has all nothing is run, and what it has stays as it is; all ranks return what any of them
/// found, `united`. Collective over `world`.
KernelTimes measure_layers(const Plan& plan, int rank, const MeasureOptions& options, const KernelTimes& known,
                           Communicator& world);

/// What the ranks found, each `mine`, the mean where several found the same. Collective over `world`.
KernelTimes united(const KernelTimes& mine, Communicator& world);

}  // namespace partita
