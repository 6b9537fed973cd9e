#pragma once

#include "partita/base/clock.hpp"
#include "partita/strategies/machine/machine.hpp"
#include "partita/train/measure/layer_times.hpp"

#include <functional>

namespace partita {

/// Measures the levels of a network whose nodes have `node` consecutive ranks of `world` each: inside the nodes if they have
/// several, and between them if there are several, with messages of up to `longest` bytes: exchanges of pairs as halos are;
/// all-reduce, all-gather and reduce-scatter over pairs, over all ranks and over powers of two between. Pairs and groups inside
/// all nodes are measured at once; so are those between nodes, of ranks of equal number, but for latency and bandwidth, which are
/// one rank's by itself: how much all of them together slow down says how many links they share. The last level holds any number
/// of ranks. One rank has no partner: the default machine's levels, which are assumed. `clock` is the rank's own, in seconds. Collective.
std::vector<Level> measure_levels(int node, Index longest, Communicator& world,
                                  const std::function<double()>& clock = now);

/// Bytes of the longest messages that measure_machine measures: beyond any cache's share, as buckets of gradients are.
inline constexpr Index longest_message = Index{32} << 20;

/// Measures the machine that the ranks of `world` run on: the levels of its network, memory bandwidth, and products and
/// convolutions of several sizes. All constants say so. `memory` is the node's, an equal part for each of its ranks. Collective.
Machine measure_machine(const MeasureOptions& options, Communicator& world);

}  // namespace partita
