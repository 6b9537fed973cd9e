#pragma once

#include "partita/backend/backend.hpp"

namespace partita {

/// Computes `problem` in each of the backend's ways, on arrays of its own, and returns the fastest: the backend's own
/// guess unless another beats it by more than such measurements err. It is chosen when the call returns. The problem has
/// a choice.
std::string_view measure_fastest(Backend& backend, const ConvProblem& problem);

}  // namespace partita
