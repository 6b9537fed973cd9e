#pragma once

#include "partita/comm/communicator.hpp"
#include "partita/model/model.hpp"
#include "partita/strategies/declare/strategy.hpp"
#include "src/cli/options/command_line.hpp"

#include <functional>
#include <memory>

namespace partita::cli {

/// A function that makes the model. It is empty if `--model` chooses a built-in model.
using ModelFactory = std::function<Model()>;

/// What a program declares in C++.
struct Program {
  ModelFactory model;
  std::function<Strategy()> strategy;  ///< empty if only the command line gives strategies

  /// True if the program has the options that choose a built-in model.
  bool builtin() const { return !model; }
};

/// How the ranks of a verb run.
struct RankSettings {
  int thread_ranks = 0;  ///< number of ranks that are threads of this process; 0: ranks are processes
  int timeout = 0;       ///< seconds that a rank waits for other ranks at most; 0: no limit
  int wait_note = 0;     ///< seconds after which a waiting rank says for whom it waits; 0: never
  int threads = 1;       ///< threads of each rank
};

/// A verb of the program: its options, and what it does. One object runs one command line.
class Command {
 public:
  Command() = default;
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  virtual ~Command() = default;

  /// Adds the verb's options to `all`. po::notify() stores their values in this object.
  virtual void add_options(boost::program_options::options_description& all) = 0;
  /// Checks the values that were stored, and settles what follows from them. Throws Error for a bad value.
  virtual void check(const CommandLine& /*line*/) {}
  /// For a verb that runs on ranks, once it was checked.
  virtual RankSettings ranks() const { return {}; }
  /// Runs the verb and returns the exit status. `world` has the ranks that run it, each of which calls this at once on
  /// the same object or on one of its own; it is null if the verb runs in one process.
  virtual int run(Communicator* world) const = 0;
};

/// What the program says about a verb, and how to make it. Each verb defines one beside its class.
struct VerbEntry {
  enum class Ranks { none, always, to_measure };  ///< to_measure: with --measure

  const char* name;
  const char* summary;                                       ///< what the verb does, after "NAME"
  const char* example;                                       ///< {0} stands for the program; "" for none
  std::unique_ptr<Command> (*make)(const Program& program);  ///< `program` outlives what it returns
  Ranks ranks = Ranks::none;                                 ///< whether it runs on ranks
  const char* usage = "[options]";                           ///< what follows its name in the help
  const char* words = nullptr;           ///< the option that takes words without an option; null for none
  const char* passes_options = nullptr;  ///< the verb to which it passes the options that it does not have
};

template <class Verb>
std::unique_ptr<Command> make(const Program& program) {
  return std::make_unique<Verb>(program);
}

}  // namespace partita::cli
