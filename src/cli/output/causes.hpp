#pragma once

#include "partita/strategies/cost/estimate.hpp"

#include <string>
#include <vector>

namespace partita::cli {

/// One thing that costs a large part of a step.
struct Cause {
  std::string what;    ///< e.g. "synchronized batch normalization of 53 layers"
  double seconds = 0;  ///< of a step
};

/// Returns the single causes that take a twentieth of the step or more, beside computing; the largest first, and at
/// most four: ranks without samples, synchronized batch normalization, the bubble, of each layer its halos,
/// redistributions, products and other collectives, and the sums of gradients as far as nothing hides them.
std::vector<Cause> large_causes(const Plan& plan, const Cost& cost);

/// Returns them as a text, e.g. "halo of conv1_1 0.514 ms (12 %), idle ranks ..."; "" if there are none.
std::string print(const std::vector<Cause>& causes, double seconds);

}  // namespace partita::cli
