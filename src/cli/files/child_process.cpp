#include "src/cli/files/child_process.hpp"

#include "partita/base/error.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/system/clock.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <thread>

namespace partita::cli {

namespace {

std::string system_message(int error) { return std::generic_category().message(error); }

/// Runs in the child: replaces it by the program. Returns errno if that fails.
int become(char* const* arguments, pid_t parent, const char* output, const char* errors) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) return ESRCH;  // the parent died before prctl took effect
  const std::array files{open("/dev/null", O_RDONLY), open(output, O_WRONLY | O_CREAT | O_TRUNC, 0666),
                         open(errors, O_WRONLY | O_CREAT | O_TRUNC, 0666)};
  for (int i = 0; i < 3; ++i)
    if (files[i] < 0 || dup2(files[i], i) < 0) return errno;
  execvp(arguments[0], arguments);
  return errno;
}

/// The last lines of a file that are not blank.
std::string last_lines(const std::string& path) {
  constexpr std::size_t most = 8;
  std::istringstream text(read_text("output", path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back(line);
  }
  std::string last;
  for (std::size_t i = lines.size() > most ? lines.size() - most : 0; i < lines.size(); ++i)
    last += (last.empty() ? "" : "\n") + lines[i];
  return last;
}

bool holds_nothing(const std::string& path) {
  std::error_code error;
  return std::filesystem::file_size(path, error) == 0 || error;
}

/// Waits for the child's end and returns its wait status. If the child has written errors but no output, ends it after
/// `patience.seconds` and stores its errors in `complaint`.
int end_of(pid_t child, const std::string& output, const std::string& errors, const Patience& patience,
           std::string& complaint) {
  constexpr double before_killing = 5;
  const double before_telling = patience.seconds > 0 ? std::min(patience.seconds, 5.0) : 5;
  const double start = now();
  double ended = 0;  // time of the SIGTERM; 0 before it
  bool told = false;
  for (int status = 0, pause = 1;; pause = std::min(2 * pause, 50)) {
    const pid_t done = waitpid(child, &status, WNOHANG);
    if (done == child || (done < 0 && errno != EINTR)) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    if (ended > 0 && now() - ended > before_killing) kill(child, SIGKILL);
    if (ended > 0 || now() - start < (told ? patience.seconds : before_telling)) continue;
    if (!holds_nothing(output) || holds_nothing(errors)) continue;
    if (!told && patience.complains) patience.complains(last_lines(errors));
    told = true;
    if (patience.seconds <= 0 || now() - start < patience.seconds) continue;
    complaint = fmt::format("no rank had started after {:.0f} s: {}", now() - start, last_lines(errors));
    kill(child, SIGTERM);
    ended = now();
  }
}

}  // namespace

ChildEnd run_child(const std::vector<std::string>& words, const std::string& folder, const Patience& patience) {
  const std::string output = folder + "/output.txt", errors = folder + "/errors.txt";
  std::vector<std::string> copies = words;
  std::vector<char*> arguments;
  for (auto& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // The child reports through this pipe why exec failed. If exec succeeds, it closes the pipe without a message.
  std::array<int, 2> told{};
  if (pipe2(told.data(), O_CLOEXEC) != 0) fail("cannot start a process: {}", system_message(errno));
  const pid_t parent = getpid(), child = fork();
  if (child == 0) {
    const int error = become(arguments.data(), parent, output.c_str(), errors.c_str());
    _exit(write(told[1], &error, sizeof error) == sizeof error ? 127 : 126);
  }
  const int forked = errno;
  close(told[1]);
  int error = 0;
  const bool failed = child > 0 && ::read(told[0], &error, sizeof error) == sizeof error;
  close(told[0]);
  if (child < 0) fail("cannot start a process: {}", system_message(forked));
  std::string complaint;
  const int status = end_of(child, output, errors, patience, complaint);
  if (failed) fail("cannot start {}: {}", words[0], system_message(error));
  ChildEnd end{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), last_lines(errors)};
  if (!complaint.empty()) end.message = complaint;  // more useful than what the child wrote when it was ended
  if (end.message.empty()) end.message = last_lines(output);
  return end;
}

std::string find_program(const std::string& name) {
  const auto runs = [](const std::string& path) {
    return access(path.c_str(), X_OK) == 0 && !std::filesystem::is_directory(path);
  };
  if (name.find('/') != std::string::npos) return runs(name) ? name : "";
  const char* all = std::getenv("PATH");
  std::istringstream folders(all != nullptr ? all : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!name.empty() && runs(folder + "/" + name)) return folder + "/" + name;
  return "";
}

}  // namespace partita::cli
