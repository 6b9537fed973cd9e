#include "partita/base/launched_rank.hpp"

#include <algorithm>
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

int launched_processes() {
  for (const char* variable : {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (const char* text = std::getenv(variable); text != nullptr) return std::max(std::atoi(text), 1);
  const char* rank = launched_rank();
  return rank == nullptr ? 1 : std::atoi(rank) + 1;
}

}  // namespace partita
