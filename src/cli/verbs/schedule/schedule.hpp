#pragma once

namespace partita::cli {

/// Runs the verb `schedule`: generates or reads a schedule and prints what it costs. It has options of its own and
/// needs one process only. Returns the exit status.
int schedule(int argc, char** argv);

}  // namespace partita::cli
