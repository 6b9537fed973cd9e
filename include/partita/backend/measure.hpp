#pragma once

#include "partita/backend/backend.hpp"

namespace partita {

/// Measures `problem` with each of the backend's algorithms, on arrays of its own, and returns the fastest. It prefers
/// the backend's default unless another algorithm is faster by more than the measurement error. On return the backend
/// uses the algorithm returned.
/// @pre backend.algorithms(problem) is not empty.
std::string_view measure_fastest(Backend& backend, const ConvProblem& problem);

}  // namespace partita
