#pragma once

#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/planner/planner.hpp"
#include "partita/train/run/rank_device.hpp"
#include "partita/train/run/trainer.hpp"
#include "src/cli/support/watch_options.hpp"

#include <boost/program_options.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace partita::cli {

/// The most samples that a batch or a data set may have.
inline constexpr Index most_samples = Index{1} << 31;

/// Returns the names of the schedules that the planner tries by default.
std::vector<std::string> default_kinds();

/// The options of all verbs. Each verb accepts some of them and refuses the others.
struct Options {
  std::string verb;
  std::string model = "fashion-cnn";
  ModelSize size;                    ///< of the built-in model
  std::string strategy;              ///< strategy file, or with `declared` one of the two names below; "" for none
  std::optional<Strategy> declared;  ///< the strategy that the program declares
  std::string grid;                  ///< replaces the grid of the strategy; "" for none
  std::vector<std::string> rules;    ///< "layer: output", added after the rules of the strategy
  std::string data = "fashion-mnist";
  std::string data_dir;
  Index samples = 0;  ///< size of the synthetic data set; 0: the default size
  TrainerOptions trainer;
  DeviceOptions device;                 ///< train, evaluate
  std::string json, save, load, trace;  ///< files; "" for none
  WatchOptions watch;                   ///< train
  bool new_run = false;                 ///< take weights alone from the checkpoint
  std::vector<std::string> skip;        ///< with new_run: patterns of layers whose weights are not loaded
  bool overwrite = false;               ///< replace a checkpoint of another run
  Index save_every = 0;                 ///< steps between checkpoints; 0: only after epochs
  std::string write_options;            ///< train: the file for all options of this run; "" for none
  std::string options_text;             ///< train: what goes into that file
  int timeout = 600;                    ///< seconds that a rank waits for other ranks at most; 0: no limit
  int wait_note = 30;                   ///< seconds after which a waiting rank says for whom it waits; 0: never
  int rank = 0;                         ///< explain: the rank whose messages, bytes and memory are printed
  bool test = true;                     ///< train: evaluate at the end
  bool evaluation = false;              ///< explain: an evaluation instead of a training step
  bool picture = false;                 ///< explain: draw how the ranks divide each output
  std::string svg;                      ///< explain: the file for a drawing of the schedule
  bool profile = false;                 ///< train: print where the time goes
  std::string machine;                  ///< machine file; "" for the default machine
  double scale_compute = 1;             ///< factor of all predicted computing times
  /// calibrate: the machine file to write; plan: the prefix of the files to write, "" for none; simulate: the folder
  std::string out;
  std::vector<std::string> strategies;  ///< compare, calibrate: strategy files
  bool measure = false;                 ///< compare: also run the strategies
  std::vector<std::string> grids;       ///< compare: grids or, with rank_counts, patterns such as "data={}"
  std::vector<int> rank_counts;         ///< compare, plan: numbers of ranks, ascending
  bool weak = false;                    ///< compare: in curves, the batch grows with the number of ranks
  std::string csv;                      ///< compare: file for the points of curves; "" for none
  int thread_ranks = 0;                 ///< number of ranks that are threads of this process; 0: ranks are processes
  int best = 3;                         ///< plan: number of strategies to write
  int examined = PlannerOptions().examined;          ///< plan: number of candidates to bind and price exactly
  std::vector<std::string> kinds = default_kinds();  ///< plan: pipeline schedules to try
  bool keep_batch_norm = false;                      ///< plan: leave out strategies that change its statistics
  double time_limit = 0;                             ///< plan: seconds after which the search ends; 0: none
  std::vector<std::string> why_not;                  ///< plan: rules to price with the best strategy
  std::vector<std::string> words;                    ///< the command line, with the name of the program
  std::set<std::string> given;                       ///< names of the options that the command line gives
  std::string why;                                   ///< explain: the layer whose predicted times are explained
};

/// A function that makes the model. It is empty if `--model` chooses a built-in model.
using ModelFactory = std::function<Model()>;

/// What a program declares in C++.
struct Program {
  ModelFactory model;
  std::function<Strategy()> strategy;  ///< empty if only the command line gives strategies

  /// True if the program has the options that choose a built-in model.
  bool builtin() const { return !model; }
};

/// In a program that declares a strategy: the names that stand for it, and for no strategy, where a file can be named.
inline constexpr std::string_view declared_strategy = "declared", no_strategy = "none";

/// Reads the command line. Returns nothing if the user asked for help or the version; `answer` is then the text to
/// print. Throws Error for an unknown option or a bad value; the message names the nearest option.
std::optional<Options> parse_options(int argc, char** argv, const Program& declared, std::string& answer);

/// Returns the descriptions of the options of a verb that parse_options() reads. They serve to print options and to
/// check values; they cannot store values (no boost::program_options::notify).
boost::program_options::options_description describe_options(const std::string& verb, const std::string& program,
                                                             bool builtin);

Model make_model(const Options& options, const ModelFactory& factory);
/// True if the options name a strategy, a file or the declared one.
bool names_strategy(const Options& options);
/// Makes the strategy that the options describe. By default, the samples are split over `ranks` ranks.
Strategy make_strategy(const Options& options, int ranks);
/// Adds rules such as "conv*: N@data H" to the strategy. `option` is the name of the option for error messages.
void add_rules(Strategy& strategy, const std::vector<std::string>& rules, std::string_view option);
/// Makes the strategies of --strategies, each with the name of its file. Without --strategies, makes the one strategy
/// that make_strategy() returns.
std::vector<std::pair<std::string, Strategy>> make_strategies(const Options& options, int ranks);

}  // namespace partita::cli
