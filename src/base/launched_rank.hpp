#pragma once

namespace partita {

/// Returns the number, as a text, of the MPI rank that a launcher started this process as; null if none did.
const char* launched_rank();
/// As launched_rank(), but also returns the number of a process that Slurm started without MPI. Slurm also gives a
/// number to the script of a batch job, and the processes that it starts may be different jobs of Partita.
const char* launched_process();

/// How many processes a launcher says that it has started.
struct LaunchedProcesses {
  int number;            ///< 1 if no launcher says anything
  const char* variable;  ///< the environment variable that says so; "" for none
  bool at_least;         ///< the launcher says only the number of this process, so there may be more
};
/// Returns how many processes a launcher started together with this one: mpiexec of MPICH and Open MPI, PMIx, PALS,
/// Flux or Slurm. A shell or script of a Slurm job is one process, however many tasks the job may start.
LaunchedProcesses launched_processes();

}  // namespace partita
