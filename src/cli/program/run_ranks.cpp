#include "src/cli/program/run_ranks.hpp"

#include "partita/base/error.hpp"
#include "partita/comm/mpi.hpp"
#include "partita/comm/thread_ranks.hpp"
#include "src/base/launched_rank.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/cli/options/option_values.hpp"
#include "src/cli/program/messages.hpp"
#include "src/cli/program/verbs.hpp"
#include "src/comm/job/peer_failed.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

namespace partita::cli {

namespace {

/// Reads the command line, once its options file could be read. Returns null if it asks for help.
std::unique_ptr<Command> read(const CommandWords& line, const Program& program, std::string& answer) {
  line.check();
  return read_verb(line.words(), line.switched_off(), program, answer);
}

/// Throws Error if a launcher has started several processes, but MPI did not connect this one with the others: each
/// would train all by itself. The first process of a launcher that tells no number of processes prints a note.
void check_connected(const Communicator& world) {
  const auto [processes, variable, at_least] = launched_processes();
  if (world.size() > 1 || (processes == 1 && !at_least)) return;
  if (processes == 1)
    return fmt::print(stderr,
                      "note: {}={} does not tell how many processes were started, and MPI sees this one alone; if "
                      "there are others, it trains by itself\n",
                      variable, std::getenv(variable));
  fail(
      "{}{} processes were started ({}={}), but MPI sees this one alone, so each would train by itself; start them "
      "with the launcher of this MPI ({}), with Slurm by srun --mpi=TYPE (`srun --mpi=list` names the types), or give "
      "--ranks N to one process; independent trainings need no MPI (srun --mpi=none) and one --ranks N each",
      at_least ? "at least " : "", processes, variable, std::getenv(variable), mpi_version());
}

/// Ends the process because of an error that only one rank has. The other ranks may wait for it. Only the first caller
/// prints.
[[noreturn]] void end(const std::string& message, int status) {
  static std::atomic<bool> ends = false;
  while (ends.exchange(true)) std::this_thread::sleep_for(std::chrono::hours(1));
  std::fflush(stdout);
  std::fputs((message + "\n").c_str(), stderr);
  std::fflush(stderr);
  std::_Exit(status);
}

/// Runs a verb as one of the threads. Errors that all ranks agreed on leave it.
int run_rank(const CommandWords& line, const Command& verb, Communicator& world) {
  try {
    return verb.run(&world);
  } catch (const AgreedError&) {
    throw;
  } catch (const PeerFailed&) {
    throw;  // another rank has left with an error that all agreed on
  } catch (const WaitedTooLong& error) {
    end(fmt::format("partita: {}", error.what()), run_failed);
  } catch (...) {
    const Failure failure = line.failure();
    end(fmt::format("rank {}: {}", world.rank(), failure.message), failure.status);
  }
}

/// Ends the process if nobody catches an exception, e.g. on a thread that watches messages.
[[noreturn]] void end_uncaught() {
  const Failure failure = present_failure();
  end(fmt::format("partita: {}", failure.message), failure.status);
}

/// Returns a function that makes the same model, and that several threads may call at once.
ModelFactory one_at_a_time(const ModelFactory& factory) {
  if (!factory) return {};
  return [&factory, mutex = std::make_shared<std::mutex>()] {
    const std::scoped_lock lock(*mutex);
    return factory();
  };
}

/// Runs a verb on all threads. Returns the exit status of rank 0.
int run_all(const CommandWords& line, const Command& verb) {
  const RankSettings settings = verb.ranks();
  print_note(line.note());
  print_note(threads_note(settings.threads));
  int status = 0;
  std::set_terminate([] { std::current_exception() ? end_uncaught() : std::abort(); });
  run_thread_ranks(settings.thread_ranks, {.note = settings.wait_note, .most = settings.timeout},
                   [&](Communicator& world) {
                     const int mine = run_rank(line, verb, world);
                     if (world.rank() == 0) status = mine;
                   });
  return status;
}

}  // namespace

int run_on_processes(int argc, char** argv, const CommandWords& line, const Program& program) {
  outlast_full_output();
  MpiSession session(argc, argv);
  Communicator& world = *session.world();
  try {
    std::string answer;
    std::unique_ptr<Command> verb;
    agree_or_throw(world, [&] {
      verb = read(line, program, answer);
      if (verb) check_connected(world);
    });
    if (world.rank() == 0) print_note(line.note());
    if (verb) {
      const RankSettings settings = verb->ranks();
      session.limit_waiting(settings.timeout);
      session.note_waiting(settings.wait_note);
      if (world.rank() == 0) print_note(threads_note(settings.threads));
      return session.returns(verb->run(&world));
    }
    if (world.rank() == 0) fmt::print("{}", answer);
    return 0;
  } catch (const AgreedError&) {
    const Failure failure = line.failure();
    if (world.rank() == 0) complain(failure.message);
    return session.returns(failure.status);
  } catch (...) {
    const Failure failure = line.failure();
    session.abort(failure.message, failure.status);
  }
}

int run_on_threads(const CommandWords& line, const Program& program) {
  outlast_full_output();
  const Program safe{one_at_a_time(program.model), program.strategy};
  try {
    std::string answer;
    if (const auto verb = read(line, safe, answer)) return run_all(line, *verb);
    fmt::print("{}", answer);
    return 0;
  } catch (...) {
    const Failure failure = line.failure();
    complain(failure.message);
    return failure.status;
  }
}

}  // namespace partita::cli
