#include "src/comm/job/mpi_launcher.hpp"

#include "src/base/launched_rank.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

namespace partita {

namespace {

/// What /proc says about a process.
struct Process {
  bool known = true;   // false if /proc could not be read, e.g. because too many files are open
  bool alive = false;  // and neither a zombie nor about to end
  pid_t parent = 0;
  std::array<char, 32> name{};
};

Process look_at(pid_t process) {
  std::array<char, 64> path{};
  std::array<char, 512> text{};
  fmt::format_to_n(path.data(), path.size() - 1, "/proc/{}/stat", process);
  const int file = open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {.known = errno == ENOENT};
  const ssize_t length = ::read(file, text.data(), text.size() - 1);
  close(file);
  // The line is: number (name) state parent group session terminal its-group flags ...; a name may have spaces and
  // parentheses.
  char* open_bracket = std::strchr(text.data(), '(');
  char* close_bracket = std::strrchr(text.data(), ')');
  if (length <= 0 || open_bracket == nullptr || close_bracket == nullptr || close_bracket[1] == '\0')
    return {.known = length < 0 && errno == ESRCH};
  Process found;
  *close_bracket = '\0';
  std::strncpy(found.name.data(), open_bracket + 1, found.name.size() - 1);
  const char state = close_bracket[2];
  std::array<long, 6> numbers{};  // from the parent to the flags
  const char *at = close_bracket + 3, *const end = text.data() + length;
  for (long& number : numbers) at = std::from_chars(std::min(at + 1, end), end, number).ptr;
  // A process that ends closes its connections, on which others may end too, before its state says that it is dead.
  constexpr long exiting = 4;  // PF_EXITING of Linux
  found.alive = state != 'Z' && state != 'X' && (numbers.back() & exiting) == 0;
  found.parent = static_cast<pid_t>(numbers.front());
  return found;
}

bool is_launcher(std::string_view name) {
  constexpr std::array<std::string_view, 10> names{"hydra_pmi_proxy", "mpiexec", "mpirun", "orterun",    "orted",
                                                   "prterun",         "prted",   "srun",   "slurmstepd", "pmi_proxy"};
  return std::any_of(names.begin(), names.end(), [&](std::string_view each) { return name.starts_with(each); });
}

/// Hashes the variables with which launchers tell jobs apart. They are the same on all ranks of a job.
std::size_t job_of_environment() {
  std::string text;
  for (const char* variable : {"PMI_JOBID", "PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID"})
    if (const char* value = std::getenv(variable); value != nullptr) text += fmt::format("{}={} ", variable, value);
  return std::hash<std::string>{}(text);
}

}  // namespace

MpiLauncher::MpiLauncher() {
  const int furthest = launched_rank() != nullptr ? 8 : 0;  // scripts may stand between the launcher and the rank
  pid_t process = getppid();
  for (int i = 0; i < furthest && count_ < most && process > 1; ++i) {
    const Process found = look_at(process);
    const bool launches = found.alive && is_launcher(found.name.data());
    if (!launches && count_ > 0) break;
    if (launches) processes_[count_++] = process;
    process = found.parent;
  }
  // Without a launcher every process is a job of its own.
  job_ = job_of_environment() ^ static_cast<unsigned long>(count_ > 0 ? processes_[0] : getpid());
}

bool MpiLauncher::died() const {
  for (int i = 0; i < count_; ++i)
    if (const Process now = look_at(processes_[i]); now.known && !now.alive) return true;
  return false;
}

int MpiLauncher::open_standard_error() const {
  if (count_ == 0) return -1;
  return open(fmt::format("/proc/{}/fd/2", process()).c_str(), O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
}

}  // namespace partita
