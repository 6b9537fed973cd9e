#include "src/comm/job/witness.hpp"

#include "src/comm/job/patience.hpp"
#include "src/comm/job/ucx_signals.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <new>

namespace partita {

struct Witness::Shared {
  pthread_mutex_t alive{};     // the rank holds it
  std::atomic<int> rank{-1};   // -1 until the rank knows its number
  std::atomic<int> signal{0};  // the signal that asked the rank to end, or 0
  std::atomic<int> waited{0};  // the seconds that the rank waited before it gave up, or 0
  std::atomic<bool> aborts{false};
};

namespace {

std::atomic<int>* asked_to_end = nullptr;  // Shared::signal, for the handler

/// Handles Ctrl-C or the time limit of a batch system: the rank still ends, but not by its own fault.
void note_signal(int signal) {
  *asked_to_end = signal;
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void watch_signals(std::atomic<int>& asked) {
  asked_to_end = &asked;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(signal, note_signal);
  }
}

/// Returns a socket to the first caller among the processes of a job, and -1 to all others. It binds an abstract socket
/// name, which only one process can own and which disappears with its owner.
int claim(unsigned long job) {
  const int name_socket = socket(AF_UNIX, SOCK_DGRAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto name = fmt::format("partita-witness-{:x}", job);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return bind(name_socket, reinterpret_cast<const sockaddr*>(&address), length) == 0 ? name_socket : -1;
}

void close_files_except(int kept) {
  constexpr int likely = 1024;  // enough, since the process has just started and has few open files
  for (int fd = 0; fd < likely; ++fd)
    if (fd != kept) close(fd);
}

void print_death(int rank, pid_t process, int signal, int waited) {
  std::array<char, 640> line{};
  std::array<char, 256> host{}, who{}, how{};
  if (rank < 0)
    std::strcpy(who.data(), "a rank that was starting");
  else
    fmt::format_to_n(who.data(), who.size() - 1, "rank {}", rank);
  gethostname(host.data(), host.size() - 1);
  if (waited > 0)
    fmt::format_to_n(how.data(), how.size() - 1, waited_too_long, waited);
  else
    std::strcpy(how.data(), signal == 0         ? "died"
                            : signal == SIGINT  ? "was interrupted (SIGINT)"
                            : signal == SIGTERM ? "was told to end (SIGTERM)"
                                                : "was told to end (SIGHUP)");
  const auto end = fmt::format_to_n(line.data(), line.size(), "partita: {} (process {} on {}) {}; the job ends\n",
                                    who.data(), process, host.data(), how.data());
  static_cast<void>(!write(STDERR_FILENO, line.data(), end.size));
}

/// Prints that the launcher has died on `launcher_error`, its standard error, or on that of the rank if it is -1.
void print_launcher_death(pid_t launcher, int launcher_error) {
  std::array<char, 640> line{};
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const auto end = fmt::format_to_n(
      line.data(), line.size(), "partita: the launcher (process {} on {}) died; the job ends\n", launcher, host.data());
  static_cast<void>(!write(launcher_error < 0 ? STDERR_FILENO : launcher_error, line.data(), end.size));
}

void make_robust(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

}  // namespace

/// Runs the witness process from its start to its end. It uses only functions that are safe after a fork. The witness
/// keeps the files of its rank open. The launcher notices a death when these files close, so it notices only after the
/// witness has printed its message.
void Witness::watch(Shared& rank, pid_t process, const MpiLauncher& launcher, int launcher_error) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(signal, SIG_IGN);
  setpgid(0, 0);  // a signal that kills the rank's process group must not kill the witness
  const bool died = pthread_mutex_lock(&rank.alive) == EOWNERDEAD;
  if (!died && !rank.aborts) _exit(0);
  const bool lost = died && rank.signal == 0 && launcher.died();
  if (const int name = claim(launcher.job()); name >= 0) {
    if (lost)
      print_launcher_death(launcher.process(), launcher_error);
    else if (died)
      print_death(rank.rank, process, rank.signal, rank.waited);
    close_files_except(name);
    // Keeps the name until the other ranks have ended, so that no other witness prints.
    sleep(lost ? 1 : 10);
  }
  _exit(0);
}

Witness::Witness() {
  give_back_ucx_signals();
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;  // the job also runs without a witness
  shared_ = new (memory) Shared;
  make_robust(shared_->alive);
  pthread_mutex_lock(&shared_->alive);
  const pid_t process = getpid();
  const int launcher_error = launcher_.open_standard_error();
  child_ = fork();
  if (child_ == 0) watch(*shared_, process, launcher_, launcher_error);
  if (launcher_error >= 0) close(launcher_error);
  watch_signals(shared_->signal);
}

Witness::~Witness() { dismiss(); }

void Witness::introduce(int rank) {
  if (shared_ != nullptr) shared_->rank = rank;
}

bool Witness::waited(int seconds) {
  if (child_ < 0) return false;
  shared_->waited = seconds;
  return true;
}

void Witness::dismiss() {
  if (child_ < 0) return;
  pthread_mutex_unlock(&shared_->alive);
  waitpid(child_, nullptr, 0);
  child_ = -1;
}

void Witness::dismiss_all() {
  if (child_ < 0) return;
  shared_->aborts = true;
  pthread_mutex_unlock(&shared_->alive);
  child_ = -1;
}

}  // namespace partita
