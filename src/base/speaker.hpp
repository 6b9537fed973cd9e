#pragma once

namespace partita {

/// Returns true on the one process of a job that prints an error which several of its processes have: the first of a
/// node that asks. Without a launcher it is always true. The process keeps this right until it ends.
bool speaks_for_job();

}  // namespace partita
