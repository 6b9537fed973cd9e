#include "partita/base/error.hpp"
#include "partita/comm/mpi.hpp"
#include "src/comm/job/watchdog.hpp"
#include "src/comm/job/witness.hpp"

namespace partita {

namespace {

[[noreturn]] void refuse() {
  fail(
      "this build has no MPI, so its ranks cannot be processes: install MPICH or Open MPI and configure again with "
      "-Dmpi=enabled, or use run_thread_ranks()");
}

}  // namespace

bool have_mpi() { return false; }
std::string how_to_start(int ranks) { return fmt::format("start it with --ranks {}", ranks); }
MpiSession::MpiSession(int&, char**&) { refuse(); }
MpiSession::~MpiSession() = default;
void MpiSession::limit_waiting(int) { refuse(); }
void MpiSession::note_waiting(int) { refuse(); }
void MpiSession::abort(const std::string&, int) const { refuse(); }
std::string mpi_version() { return ""; }

}  // namespace partita
