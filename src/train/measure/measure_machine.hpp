#pragma once

#include "partita/strategies/machine/machine.hpp"
#include "src/system/clock.hpp"
#include "src/train/measure/layer_times.hpp"

#include <functional>

namespace partita {

/// Measures the levels of a network whose nodes have `node` consecutive ranks of `world` each: the level inside nodes
/// if a node has several ranks, and the level between nodes if there are several nodes. Messages have up to `longest`
/// bytes.
/// It times pairwise exchanges as halos use them, and all-reduce, all-gather and reduce-scatter over 2, 4, 8, ... and
/// all ranks. Inside nodes, all pairs and groups run at once. Between nodes, ranks of equal number in their nodes form
/// pairs and groups, which also run at once; only latency and bandwidth are those of one rank per node alone. The
/// slowdown with all ranks at once shows how many links they share. The last level holds any number of ranks.
/// With one rank there is no partner: it returns the default machine's levels, marked as assumed. `clock` is the rank's
/// own, in seconds. Collective: every rank of `world` calls it.
std::vector<Level> measure_levels(int node, Index longest, Communicator& world,
                                  const std::function<double()>& clock = now);

/// The same between the memories of devices.
std::vector<Level> measure_levels(int node, Index longest, Communicator& world, const Processor& on,
                                  const std::function<double()>& clock = now);

/// Bytes of the longest messages that measure_machine() sends: larger than a rank's share of any cache, as gradient
/// buckets are.
inline constexpr Index longest_message = Index{32} << 20;

/// Measures the machine that the ranks of `world` run on: the levels of its network, memory bandwidth, and matrix
/// products and convolutions of several sizes. The source of each constant says so. `memory` is an equal share of the
/// node's memory for each of its ranks. Collective: every rank of `world` calls it.
Machine measure_machine(const MeasureOptions& options, Communicator& world);

}  // namespace partita
