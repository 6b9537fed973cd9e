#pragma once

#include "partita/base/types.hpp"

#include <climits>

namespace partita {

/// The most elements that one call of MPI moves, since MPI counts in int. Communication of more elements is split into
/// several calls. Tests set it to a small number, on all ranks alike.
inline Index most_mpi_elements = Index{INT_MAX} / 2;

}  // namespace partita
