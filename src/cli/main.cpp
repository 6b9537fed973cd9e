#include "partita/cli/main.hpp"

#include "options.hpp"
#include "partita/base/error.hpp"
#include "partita/comm/mpi.hpp"

#include <unistd.h>

#include <cstdio>
#include <new>

namespace partita {

namespace {

constexpr int user_error = 2;

/// One line; the drawing below it, if there is one, only for people.
void complain(std::string_view message) {
  fmt::print(stderr, "partita: {}\n", isatty(STDERR_FILENO) != 0 ? message : message.substr(0, message.find('\n')));
  std::fflush(stderr);
}

/// Runs a verb on all ranks. What all of them agreed on rank 0 prints; anything else takes the job down from where it is.
int run_ranks(int argc, char** argv, const cli::ModelFactory& factory) {
  MpiSession session(argc, argv);
  const auto world = session.world();
  try {
    std::string answer;
    std::optional<cli::Options> options;
    together(*world, [&] { options = cli::parse_options(argc, argv, !factory, answer); });
    if (options) return cli::train(*options, factory, world);
    if (world->rank() == 0) fmt::print("{}", answer);
    return 0;
  } catch (const AgreedError& error) {
    if (world->rank() == 0) complain(error.what());
    return user_error;
  } catch (const Error& error) {
    session.abort(error.what(), user_error);
  } catch (const std::bad_alloc&) {
    session.abort("out of memory", 1);
  } catch (const std::exception& error) {
    session.abort(error.what(), 1);
  }
}

int run(int argc, char** argv, const cli::ModelFactory& factory) {
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "train" || verb == "evaluate") return run_ranks(argc, argv, factory);
  try {
    std::string answer;
    const auto options = cli::parse_options(argc, argv, !factory, answer);
    if (options) return cli::explain(*options, factory);
    fmt::print("{}", answer);
    return 0;
  } catch (const Error& error) {
    complain(error.what());
    return user_error;
  }
}

}  // namespace

int main(int argc, char** argv, const std::function<Model()>& model) { return run(argc, argv, model); }
int main(int argc, char** argv) { return run(argc, argv, {}); }

}  // namespace partita
