#pragma once

#include "partita/comm/communicator.hpp"

#include <memory>

namespace partita::test {

/// Returns the communicator of all ranks of the job. For programs that are linked with mpi_main.
std::shared_ptr<Communicator> mpi_world();

}  // namespace partita::test
