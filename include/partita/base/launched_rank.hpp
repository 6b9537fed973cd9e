#pragma once

namespace partita {

/// Returns the number, as a text, of the MPI rank that a launcher started this process as; null if none did.
const char* launched_rank();
/// As launched_rank(), but also returns the number of a process that Slurm started without MPI. Slurm also gives a
/// number to the script of a batch job, and the processes that it starts may be different jobs of Partita.
const char* launched_process();

/// Returns how many processes a launcher started together with this one; 1 if it does not say.
int launched_processes();

}  // namespace partita
