#include "partita/comm/mpi.hpp"

#include "src/base/plain_text.hpp"
#include "src/base/speaker.hpp"
#include "src/comm/job/patience.hpp"
#include "src/comm/job/watchdog.hpp"
#include "src/comm/job/witness.hpp"
#include "src/comm/mpi/mpi_communicator.hpp"
#include "src/device/exception_message.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace partita {

namespace {

/// Returns how many ranks the launcher starts on this node; 1 if it does not say.
Index ranks_on_node() {
  for (const char* variable : {"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_SIZE"})
    if (const char* text = std::getenv(variable); text != nullptr)
      return std::max<Index>(parse_number<Index>(text).value_or(1), 1);
  return 1;
}

/// Lets UCX, which MPICH may use, do without /dev/shm if that is too small. UCX needs 4.1 MiB of it for each rank, and
/// MPI does not start if it gets less. A user who sets UCX_TLS has chosen the transports.
void spare_shared_memory() {
  constexpr Index needed = Index{5} << 20;
  const Index free = free_shared_bytes();
  if (free >= 0 && free < needed * ranks_on_node()) setenv("UCX_TLS", "^posix", /*overwrite=*/0);
}

/// Returns true if MPI_Finalize may hang. MPICH before 4.2 first disconnects there, and then waits in a barrier of the
/// launcher, where it answers nobody. UCX, since 1.12, disconnects over TCP when each peer that it has sent something
/// has answered once more. So a rank hangs if its peer reaches the barrier first (openucx/ucx issue 8738). InfiniBand
/// answers by itself.
bool finalize_may_hang() {
  const std::string version = mpi_version();
  const auto is = [&](std::string_view number) {
    return version.starts_with(fmt::format("MPICH Version: {}.", number));
  };
  std::error_code none;
  return dlsym(RTLD_DEFAULT, "ucp_worker_progress") != nullptr && (is("3") || is("4.0") || is("4.1")) &&
         std::filesystem::directory_iterator("/sys/class/infiniband", none) == std::filesystem::directory_iterator();
}

/// Sends a message from every rank to every other, and waits until all ranks have theirs. If no rank calls MPI until
/// all have returned, MPI_Finalize does not hang: there, each rank asks all others for an answer before it answers, so
/// it cannot have all answers before all have asked it.
void message_all(Communicator& world) {
  const std::byte sent{};
  std::vector<std::byte> received(static_cast<std::size_t>(world.size()));
  std::vector<Send> sends;
  std::vector<Recv> recvs;
  for (int peer = 0; peer < world.size(); ++peer) {
    if (peer == world.rank()) continue;
    sends.push_back({peer, {&sent, 1}});
    recvs.push_back({peer, {&received[static_cast<std::size_t>(peer)], 1}});
  }
  world.exchange(sends, recvs, {}).wait();
  std::int32_t done = 0;
  world.all_reduce(&done, 1, DType::i32, ReduceOp::sum, {}).wait();
}

/// Keeps MPI from printing a line of its own after ours when a job is aborted: it only repeats the status.
void mute_standard_error() {
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
}

const MpiSession* open_session = nullptr;
std::terminate_handler handler_without_session = nullptr;

/// Ends the whole job if nobody catches an exception while a session is open: the other ranks would wait for this one.
void abort_session() {
  if (open_session != nullptr && std::current_exception()) {
    try {
      throw;
    } catch (const Error& error) {
      open_session->abort(error.what(), 2);
    } catch (const DeviceError& error) {
      open_session->abort(error.what(), 3);
    } catch (const CommunicationError& error) {
      open_session->abort(error.what(), 3);
    } catch (...) {
      open_session->abort(message_of_exception(), EXIT_FAILURE);
    }
  }
  handler_without_session();
}

}  // namespace

struct MpiSession::State {
  bool ours = false;
  int status = 0;
  std::unique_ptr<Witness> witness;
  std::shared_ptr<MpiContext> context;
  std::unique_ptr<Watchdog> watchdog, note;
  std::unique_ptr<Periodic> launcher;
  std::shared_ptr<Communicator> world;
};

MpiSession::MpiSession(int& argc, char**& argv) : state_(std::make_unique<State>()) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    state_->witness = std::make_unique<Witness>();
    spare_shared_memory();
    // MPICH's sums inside nodes first would depend on where ranks are. Here groups that sum replicas sum them alike.
    setenv("MPIR_CVAR_ENABLE_SMP_COLLECTIVES", "0", /*overwrite=*/0);
    int level = MPI_THREAD_SINGLE;
    check(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
    state_->ours = true;
    if (level < MPI_THREAD_FUNNELED)
      abort("this MPI library does not support threads in its processes (MPI_THREAD_FUNNELED)", 2);
  }
  // MPI reports failures that belong to no communicator, e.g. of waiting for several requests, to these two.
  for (const MPI_Comm comm : {MPI_COMM_WORLD, MPI_COMM_SELF})
    check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  MPI_Comm world = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup");
  try {
    state_->context = std::make_shared<MpiContext>(world);
  } catch (const Error& error) {  // PARTITA_NODES is wrong; without a session, the launcher would end the job its way
    abort(error.what(), 2);
  }
  state_->world = make_mpi_communicator(world, state_->context);
  open_session = this;
  handler_without_session = std::set_terminate(abort_session);
  if (!state_->witness) return;
  state_->witness->introduce(state_->world->rank());
  constexpr int failed = 3;
  state_->launcher = std::make_unique<Periodic>(std::chrono::milliseconds(500), [this] {
    if (state_->witness->launcher_died()) std::_Exit(failed);  // the witness says it
  });
}

MpiSession::~MpiSession() {
  // MPI_Finalize waits for all ranks. A rank that has failed would wait in it for peers that wait for this rank.
  if (std::uncaught_exceptions() > 0) abort("an exception left the MPI session", EXIT_FAILURE);
  std::set_terminate(handler_without_session);
  open_session = nullptr;
  if (!state_->ours || finalized()) return;
  try {
    finalize();
  } catch (const CommunicationError& error) {
    abort(error.what(), 3);
  }
}

void MpiSession::limit_waiting(int seconds) {
  state_->watchdog.reset();
  if (seconds == 0) return;
  state_->watchdog =
      std::make_unique<Watchdog>(state_->context->waits(), std::chrono::seconds(seconds), [this, seconds] {
        std::fflush(stdout);
        if (!state_->witness || !state_->witness->waited(seconds))
          fmt::print(stderr, "partita: a rank {}; the job ends\n", fmt::format(waited_too_long, seconds));
        std::_Exit(3);
      });
}

void MpiSession::note_waiting(int seconds) {
  state_->note.reset();
  if (seconds == 0) return;
  state_->context->set_waiting(state_->world->rank(), seconds);
  state_->note = std::make_unique<Watchdog>(state_->context->waits(), std::chrono::seconds(seconds),
                                            [this] { state_->context->waits().ask(); });
}

/// Calls MPI_Finalize. If it hangs, ends the process, since all ranks have done their work by then.
void MpiSession::finalize() {
  std::int32_t may_hang = finalize_may_hang() ? 1 : 0;
  state_->world->all_reduce(&may_hang, 1, DType::i32, ReduceOp::max, {}).wait();
  const int rank = state_->world->rank();
  // Seconds. Rank 0 prints its message before the other ranks exit, since the launcher may then end the job.
  const int patience = rank == 0 ? 10 : 12;
  state_->watchdog.reset();
  state_->note.reset();
  state_->launcher.reset();
  state_->witness.reset();
  Waits waits;
  const Watchdog watchdog(waits, std::chrono::seconds(patience), [this, rank, patience] {
    if (rank == 0)
      fmt::print(stderr,
                 "partita: all ranks have finished, but MPI_Finalize has not returned for {} s; exiting without it "
                 "(a known problem of UCX over TCP: openucx/ucx issue 8738)\n",
                 patience);
    std::fflush(nullptr);
    std::_Exit(state_->status);
  });
  const Waits::Scope waiting(waits);
  const bool together = may_hang != 0 && !state_->context->one_node();
  if (together) message_all(*state_->world);
  state_->world.reset();
  state_->context.reset();
  // Ranks leave message_all at most this much apart. If it is more, the job still ends, by the limit above.
  if (together) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  MPI_Finalize();
}

void MpiSession::abort(const std::string& message, int status) const {
  if (state_->witness) state_->witness->dismiss_all();
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const auto line = fmt::format("rank {}: {}\n", rank, message);
  std::fflush(stdout);
  if (speaks_for_job()) std::fputs(line.c_str(), stderr);  // other ranks may fail alike
  std::fflush(stderr);
  // When a job is aborted, launchers drop output that they have not forwarded yet. Also, the witness of this rank needs
  // time to silence the other witnesses.
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  mute_standard_error();
  MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

std::shared_ptr<Communicator> MpiSession::world() const { return state_->world; }

int MpiSession::returns(int status) { return state_->status = status; }

bool have_mpi() { return true; }

std::string how_to_start(int ranks) { return fmt::format("start it with `mpiexec -n {0}` or with --ranks {0}", ranks); }

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0, major = 0, minor = 0;
  MPI_Get_library_version(text.data(), &length);
  MPI_Get_version(&major, &minor);
  // MPICH writes a table with tabs, Open MPI a list with commas. Both begin with the name and version.
  std::string library;
  for (const char c : std::string_view(text.data(), static_cast<std::size_t>(length))) {
    if (c == '\n' || c == ',') break;
    if (c != '\t' && c != ' ')
      library += c;
    else if (!library.empty() && library.back() != ' ')
      library += ' ';
  }
  return fmt::format("{} (MPI {}.{})", library, major, minor);
}

}  // namespace partita
