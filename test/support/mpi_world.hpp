#pragma once

#include "partita/comm/communicator.hpp"

#include <memory>

namespace partita::test {

/// All ranks of the job, in programs that are linked with mpi_main.
std::shared_ptr<Communicator> mpi_world();

}  // namespace partita::test
