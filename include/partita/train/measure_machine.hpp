#pragma once

#include "partita/strategies/machine.hpp"
#include "partita/train/layer_times.hpp"

namespace partita {

/// Measures the machine that the ranks of `world` run on: messages, halo-like exchanges and every collective at several sizes,
/// over all ranks and over pairs, inside a node and between nodes; memory bandwidth, and products and convolutions of several
/// sizes. All constants say so. `memory` is what of the node's is free, for one of its ranks. Collective.
Machine measure_machine(const MeasureOptions& options, Communicator& world);

}  // namespace partita
