#include "partita/base/error.hpp"
#include "partita/comm/mpi.hpp"

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
struct MpiSession::State {};
MpiSession::MpiSession(int&, char**&) { refuse(); }
MpiSession::~MpiSession() = default;
std::shared_ptr<Communicator> MpiSession::world() const { refuse(); }
int MpiSession::returns(int) { refuse(); }
void MpiSession::limit_waiting(int) { refuse(); }
void MpiSession::note_waiting(int) { refuse(); }
void MpiSession::abort(const std::string&, int) const { refuse(); }
std::string mpi_version() { return ""; }

}  // namespace partita
