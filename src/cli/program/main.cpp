#include "partita/cli/main.hpp"

#include "partita/base/error.hpp"
#include "partita/comm/mpi.hpp"
#include "src/cli/options/command_line.hpp"
#include "src/cli/program/command_words.hpp"
#include "src/cli/program/completion.hpp"
#include "src/cli/program/man_page.hpp"
#include "src/cli/program/messages.hpp"
#include "src/cli/program/run_ranks.hpp"
#include "src/cli/program/verbs.hpp"
#include "src/comm/job/ucx_signals.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace partita {

namespace {

using cli::complain, cli::run_failed, cli::user_error;

/// Runs the verbs `completion` and `man`, which print files for an installation.
int print_for_shell(const std::vector<std::string>& words, const cli::Program& program) {
  const std::string name = cli::program_name(words[0]);
  std::vector<cli::VerbOptions> verbs;
  for (const cli::VerbEntry* verb : cli::verbs()) verbs.push_back(cli::options_of(*verb, name, program));
  if (words[1] == "man")
    fmt::print("{}", cli::print_man_page(name, verbs));
  else
    fmt::print("{}", cli::print_completion(words.size() > 2 ? words[2] : "", name, verbs));
  return 0;
}

int run_verb(const cli::CommandWords& line, const cli::Program& program) {
  if (line.verb() == "completion" || line.verb() == "man") return print_for_shell(line.words(), program);
  std::string answer;
  if (const auto verb = cli::read_verb(line.words(), line.switched_off(), program, answer)) return verb->run(nullptr);
  fmt::print("{}", answer);
  return 0;
}

/// Flushes standard output. Returns `status`, or the status of a failed run if something could not be written.
int flushed(int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  complain(fmt::format("standard output cannot be written: {}; free space, or redirect it to another file",
                       std::generic_category().message(errno)));
  return run_failed;
}

/// Runs a verb that needs no ranks. Also handles help, the version and unknown verbs. Each process does all of it, even
/// if a launcher has started several: the output of each may go to a file of its own.
int run_alone(const cli::CommandWords& line, const cli::Program& program) {
  try {
    line.check();
    cli::print_note(line.note());
    return flushed(run_verb(line, program));
  } catch (...) {
    const cli::Failure failure = line.failure();
    if (failure.status == EXIT_FAILURE && std::ferror(stdout) != 0) return flushed(run_failed);  // fmt cannot write
    complain(failure.message);
    return failure.status;
  }
}

/// Opens /dev/null in place of each standard stream that is closed. Otherwise the next file that is opened, perhaps a
/// checkpoint, would get its number, and with it all that is printed.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0 && errno == EBADF) static_cast<void>(open("/dev/null", O_RDWR));
}

int run(int argc, char** argv, const cli::Program& program) {
  open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // beyond a limit of file sizes a write then fails, and the message names the file
  give_back_ucx_signals();
  const cli::CommandWords line(argc, argv, program);
  using Ranks = cli::VerbEntry::Ranks;
  const cli::VerbEntry* verb = cli::find_verb(line.verb());
  const Ranks ranks = verb == nullptr ? Ranks::none : verb->ranks;
  if (ranks == Ranks::none || (ranks == Ranks::to_measure && !line.has("--measure"))) return run_alone(line, program);
  return line.has("--ranks") || !have_mpi() ? cli::run_on_threads(line, program)
                                            : cli::run_on_processes(argc, argv, line, program);
}

}  // namespace

int main(int argc, char** argv, const std::function<Model()>& model) {
  if (model) return run(argc, argv, {model, {}});
  complain("partita::main has an empty function for its model; give it a function that returns a Model");
  return user_error;
}
int main(int argc, char** argv, const std::function<Model()>& model, const std::function<Strategy()>& strategy) {
  if (model && strategy) return run(argc, argv, {model, strategy});
  complain(fmt::format("partita::main has an empty function for its {0}; give it a function that returns a {1}",
                       model ? "strategy" : "model", model ? "Strategy" : "Model"));
  return user_error;
}
int main(int argc, char** argv) { return run(argc, argv, {}); }

}  // namespace partita
