#pragma once

#include "partita/train/data/dataset.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace partita {

/// Two parts of a data set, each with ascending numbers of samples.
struct Division {
  std::vector<Index> training, held_out;
};

/// Divides `samples` samples: about `fraction` of them are held out, at least one, and at least one is left. The seed
/// alone draws which: the division is the same on every rank, under every strategy, and when a training resumes. Throws
/// Error if `fraction` is not between 0 and 1, or if there are fewer than two samples.
Division divide(Index samples, double fraction, std::uint64_t seed);

/// A data set of the samples `samples` of `whole`: its sample i is sample samples[i] of `whole`.
/// @pre `whole` has the samples.
std::unique_ptr<Dataset> make_subset(std::unique_ptr<Dataset> whole, std::vector<Index> samples);

}  // namespace partita
