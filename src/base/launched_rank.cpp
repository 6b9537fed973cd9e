#include "partita/base/launched_rank.hpp"

#include <cstdlib>

namespace partita {

const char* launched_rank() {
  for (const char* variable : {"PMI_RANK", "PMI_ID", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"})
    if (const char* rank = std::getenv(variable); rank != nullptr) return rank;
  return nullptr;
}

const char* launched_process() {
  const char* rank = launched_rank();
  return rank != nullptr ? rank : std::getenv("SLURM_PROCID");
}

}  // namespace partita
