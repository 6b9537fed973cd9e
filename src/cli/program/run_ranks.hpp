#pragma once

#include "src/cli/program/command_words.hpp"

namespace partita::cli {

/// Runs a verb on ranks that are the processes of an MPI job. Rank 0 prints an error that all ranks agreed on; any
/// other error aborts the job on the rank where it occurs. Returns the exit status. `argc` and `argv` are main()'s.
int run_on_processes(int argc, char** argv, const CommandWords& line, const Program& program);
/// Runs a verb on ranks that are threads of this process, with the same output, errors and exit status.
int run_on_threads(const CommandWords& line, const Program& program);

}  // namespace partita::cli
