#pragma once

#include "partita/strategies/plan/plan.hpp"

namespace partita {

/// Returns the layers that keep their data for the backward pass while all other layers recompute it. The model is cut
/// into segments, and a layer is kept if its output crosses a cut. The peak memory is then about the kept data plus the
/// data of the largest segment, which is held while the segment is recomputed. The cuts are chosen so that this sum is
/// near its minimum (after Chen et al. 2016, here for any graph and with the memory that each layer takes on rank 0).
/// Returns an empty vector if the plan has several stages, because each stage already is a segment.
std::vector<std::string> layers_to_keep(const Plan& plan);

/// Returns the strategy with recomputation for all layers except `kept`.
Strategy recomputing(Strategy strategy, const std::vector<std::string>& kept);

/// Returns this setting as text for messages: "recompute = true in all layers but conv1, pool1".
std::string recompute_text(const std::vector<std::string>& kept);

}  // namespace partita
