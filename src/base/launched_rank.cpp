#include "src/base/launched_rank.hpp"

#include "src/base/plain_text.hpp"

#include <array>
#include <cstdlib>

namespace partita {

namespace {

/// The variables in which a launcher tells a process its number, and how many processes it has started.
struct Variables {
  const char *rank, *size;  // size: null if the launcher does not tell
};
/// Those of MPI.
constexpr std::array<Variables, 7> launchers{{{"PMI_RANK", "PMI_SIZE"},
                                              {"PMI_ID", "PMI_SIZE"},
                                              {"PMIX_RANK", "PMIX_SIZE"},
                                              {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                              {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                                              {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
                                              {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"}}};
/// Those of batch systems. The script of a batch job may also have a number. srun sets the last two for a step alone.
constexpr std::array<Variables, 4> systems{{{"PALS_RANKID", nullptr},
                                            {"ALPS_APP_PE", nullptr},
                                            {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
                                            {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}}};

/// Returns the value of a variable as a whole number; 0 if it is not set, or not a number.
int number_of(const char* variable) {
  const char* text = variable == nullptr ? nullptr : std::getenv(variable);
  return text == nullptr ? 0 : parse_number<int>(text).value_or(0);
}

}  // namespace

const char* launched_rank() {
  for (const auto& launcher : launchers)
    if (const char* rank = std::getenv(launcher.rank); rank != nullptr) return rank;
  return nullptr;
}

const char* launched_process() {
  if (const char* rank = launched_rank(); rank != nullptr) return rank;
  for (const auto& system : systems)
    if (const char* rank = std::getenv(system.rank); rank != nullptr) return rank;
  return nullptr;
}

LaunchedProcesses launched_processes() {
  for (const auto& launcher : launchers)  // mpiexec may run in a step of Slurm, so its number counts
    if (const int size = number_of(launcher.size); size > 0) return {size, launcher.size, false};
  LaunchedProcesses found{1, "", false};
  const auto add = [&](int number, const char* variable, bool at_least) {
    if (number > found.number || *found.variable == '\0') found = {number, variable, at_least};
  };
  for (const auto& launcher : launchers)
    if (std::getenv(launcher.rank) != nullptr) add(number_of(launcher.rank) + 1, launcher.rank, true);
  for (const auto& [rank, size] : systems) {
    if (std::getenv(rank) == nullptr) continue;
    if (size == nullptr)
      add(number_of(rank) + 1, rank, true);
    else if (number_of(size) > 0)
      add(number_of(size), size, false);
  }
  return found;
}

}  // namespace partita
