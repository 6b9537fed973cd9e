#pragma once

#include "partita/base/types.hpp"

namespace partita {

/// How the places of a sequence choose experts by their scores, and how many of them an expert takes (Lepikhin et al.,
/// "GShard", 2021). Every place chooses the experts with its largest scores; of equal ones the first. Of the places
/// that choose an expert it takes as many as it has slots, the first ones of each sample.
struct Routing {
  Index experts = 1;
  Index chosen = 1;  ///< experts that a place chooses
  Index slots = 1;   ///< places of a sample that an expert takes
  /// A chosen expert's result is multiplied by its gate: by its probability, the softmax over the scores of all experts
  /// (false), or over those of the chosen ones (true)
  bool normalized = false;
  /// The whole numbers that tell the routes of one sample (Backend::route): an even number.
  Index numbers(Index places) const { return (2 * places * chosen + (slots + 1) * experts + 1) / 2 * 2; }
};

}  // namespace partita
