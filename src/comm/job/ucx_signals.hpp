#pragma once

namespace partita {

/// Gives back the signals that UCX, which MPICH may use, takes for itself when it is loaded. Faults then end their
/// process at once: UCX would print a backtrace in the signal handler, which allocates memory, so it waits forever for
/// the lock of the allocator if the thread held that lock when the fault came. SIGHUP, which UCX takes as a request to
/// print debugging lines, again does what it did when the process was started. A user who wants UCX's handlers sets its
/// environment variables UCX_HANDLE_ERRORS or UCX_ERROR_SIGNALS, or UCX_DEBUG_SIGNO. Does nothing without UCX, and when
/// it is called again.
void give_back_ucx_signals();

}  // namespace partita
