#pragma once

#include "partita/strategies/machine.hpp"
#include "partita/train/layer_times.hpp"

namespace partita {

/// Measures the machine that the ranks of `world` run on: exchanges of pairs as halos are; all-reduce, all-gather and
/// reduce-scatter over pairs, over all ranks and over powers of two between; both inside a node and between nodes, at several
/// sizes; memory bandwidth, and products and convolutions of several sizes. All constants say so; one rank alone has no network,
/// and that of default_machine() is taken. `memory` is the node's, an equal part for each of its ranks. Collective.
Machine measure_machine(const MeasureOptions& options, Communicator& world);

}  // namespace partita
