#include "partita/cli/main.hpp"

#include "partita/base/error.hpp"
#include "partita/base/launched_rank.hpp"
#include "partita/comm/mpi.hpp"
#include "src/cli/program/command_words.hpp"
#include "src/cli/program/completion.hpp"
#include "src/cli/program/man_page.hpp"
#include "src/cli/program/verb_options.hpp"
#include "src/cli/support/command_line.hpp"
#include "src/cli/support/lasting_output.hpp"
#include "src/cli/support/options.hpp"
#include "src/cli/support/threads.hpp"
#include "src/cli/verbs/calibrate/calibrate.hpp"
#include "src/cli/verbs/compare/compare.hpp"
#include "src/cli/verbs/explain/explain.hpp"
#include "src/cli/verbs/info/info.hpp"
#include "src/cli/verbs/plan/plan.hpp"
#include "src/cli/verbs/report/report.hpp"
#include "src/cli/verbs/scale/scale.hpp"
#include "src/cli/verbs/schedule/schedule.hpp"
#include "src/cli/verbs/simulate/simulate.hpp"
#include "src/cli/verbs/train/train.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace partita {

namespace {

constexpr int user_error = 2, run_failed = 3;

/// Prints an error in one line. The lines below the first (a marked excerpt) are printed only on a terminal.
void complain(std::string_view message) {
  const auto shown = isatty(STDERR_FILENO) != 0 ? message : message.substr(0, message.find('\n'));
  std::fputs(fmt::format("partita: {}\n", shown).c_str(), stderr);  // fmt::print would throw if that is full
  std::fflush(stderr);
}

void print_note(const cli::CommandWords& line) {
  if (!line.note().empty()) std::fputs(fmt::format("note: {}\n", line.note()).c_str(), stderr);
}

/// Runs a verb on all ranks. Rank 0 prints an error that all ranks agreed on; any other error aborts the job on the
/// rank where it occurs.
int run_ranks(cli::CommandWords& line, const cli::ModelFactory& factory) {
  cli::outlast_full_output();
  int argc = line.count();
  char** argv = line.words();
  MpiSession session(argc, argv);
  Communicator& world = *session.world();
  try {
    std::string answer;
    std::optional<cli::Options> options;
    agree_or_throw(world, [&] {
      line.check();
      options = cli::parse_options(argc, argv, !factory, answer);
      if (options) options->given.insert(line.switched_off().begin(), line.switched_off().end());
    });
    if (world.rank() == 0) print_note(line);
    if (options) {
      session.limit_waiting(options->timeout);
      session.note_waiting(options->wait_note);
      if (const auto note = cli::threads_note(options->trainer.threads); world.rank() == 0 && !note.empty())
        fmt::print(stderr, "note: {}\n", note);
      if (options->verb == "calibrate") return session.returns(cli::calibrate(*options, factory, world));
      if (options->verb == "compare") return session.returns(cli::compare(*options, factory, &world));
      return session.returns(cli::train(*options, factory, world));
    }
    if (world.rank() == 0) fmt::print("{}", answer);
    return 0;
  } catch (const RunFailed& error) {
    if (world.rank() == 0) complain(error.what());
    return session.returns(run_failed);
  } catch (const AgreedError& error) {
    if (world.rank() == 0) complain(line.with_place(error.what()));
    return session.returns(user_error);
  } catch (const Error& error) {
    session.abort(line.with_place(error.what()), user_error);
  } catch (const DeviceError& error) {
    session.abort(error.what(), run_failed);
  } catch (...) {
    session.abort(message_of_exception(), 1);
  }
}

/// False if a launcher started this process as a rank other than 0. Verbs without MPI then still print only once.
bool speaks() {
  const char* rank = launched_process();
  return rank == nullptr || std::string_view(rank) == "0";
}

/// Runs the verbs `completion` and `man`, which print files for an installation.
int print_for_shell(int argc, char** argv, const cli::ModelFactory& factory) {
  const std::string program = cli::program_name(argc, argv);
  const auto verbs = cli::verb_options(program, !factory);
  if (std::string_view(argv[1]) == "man")
    fmt::print("{}", cli::print_man_page(program, verbs));
  else
    fmt::print("{}", cli::print_completion(argc > 2 ? argv[2] : "", program, verbs));
  return 0;
}

int run_verb(int argc, char** argv, const cli::ModelFactory& factory) {
  const std::string_view verb = argc > 1 ? argv[1] : "";
  if (verb == "schedule") return cli::schedule(argc, argv);
  if (verb == "report") return cli::report(argc, argv);
  if (verb == "scale") return cli::scale(argc, argv, factory);
  if (verb == "info") return cli::info(argc, argv);
  if (verb == "completion" || verb == "man") return print_for_shell(argc, argv, factory);
  std::string answer;
  const auto options = cli::parse_options(argc, argv, !factory, answer);
  if (options && options->verb == "plan") return cli::plan(*options, factory);
  if (options && options->verb == "compare") return cli::compare(*options, factory, nullptr);
  if (options && options->verb == "simulate") return cli::simulate(*options, factory);
  if (options) return cli::explain(*options, factory);
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

/// Runs a verb that needs no ranks. Also handles help, the version and unknown verbs.
int run_alone(cli::CommandWords& line, const cli::ModelFactory& factory) {
  if (!speaks() && std::freopen("/dev/null", "w", stdout) == nullptr) return 1;
  try {
    line.check();
    if (speaks()) print_note(line);
    return flushed(run_verb(line.count(), line.words(), factory));
  } catch (const RunFailed& error) {
    if (speaks()) complain(error.what());
    return run_failed;
  } catch (const Error& error) {
    if (speaks()) complain(line.with_place(error.what()));
    return user_error;
  } catch (const std::system_error&) {  // fmt cannot write
    if (std::ferror(stdout) != 0) return flushed(run_failed);
    if (speaks()) complain(message_of_exception());
    return 1;
  } catch (...) {
    if (speaks()) complain(message_of_exception());
    return 1;
  }
}

/// Opens /dev/null in place of each standard stream that is closed. Otherwise the next file that is opened, perhaps a
/// checkpoint, would get its number, and with it all that is printed.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0 && errno == EBADF) static_cast<void>(open("/dev/null", O_RDWR));
}

int run(int argc, char** argv, const cli::ModelFactory& factory) {
  open_standard_streams();
  cli::CommandWords line(argc, argv, !factory);
  const std::string verb = line.count() > 1 ? line.words()[1] : "";
  const bool measures = std::any_of(line.words(), line.words() + line.count(),
                                    [](const char* word) { return std::string_view(word) == "--measure"; });
  const bool ranks = verb == "train" || verb == "evaluate" || verb == "calibrate" || (verb == "compare" && measures);
  return ranks ? run_ranks(line, factory) : run_alone(line, factory);
}

}  // namespace

int main(int argc, char** argv, const std::function<Model()>& model) {
  if (model) return run(argc, argv, model);
  if (speaks()) complain("partita::main has an empty function for its model; give it a function that returns a Model");
  return user_error;
}
int main(int argc, char** argv) { return run(argc, argv, {}); }

}  // namespace partita
