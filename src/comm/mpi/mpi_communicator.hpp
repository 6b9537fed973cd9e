#pragma once

#include "src/comm/mpi/mpi_context.hpp"

#include "partita/comm/communicator.hpp"

#include <memory>

namespace partita {

/// Makes a communicator of MPI processes. It takes ownership of `comm`. Collective: every rank of `comm` calls it.
std::shared_ptr<Communicator> make_mpi_communicator(MPI_Comm comm, std::shared_ptr<MpiContext> context);

}  // namespace partita
