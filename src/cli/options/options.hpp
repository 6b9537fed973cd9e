#pragma once

#include "partita/model/builtin/builtin.hpp"
#include "partita/train/trainer/rank_device.hpp"
#include "partita/train/trainer/trainer.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/cli/options/command.hpp"

#include <boost/program_options.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace partita::cli {

/// The most samples that a batch or a data set may have.
inline constexpr Index most_samples = Index{1} << 31;

/// The options that several verbs with a model share. A verb adds some of the groups below.
struct Options {
  std::string model = "fashion-cnn";
  ModelSize size;                       ///< of the built-in model
  std::string strategy;                 ///< strategy file, or with `declared` one of the two names below; "" for none
  std::optional<Strategy> declared;     ///< the strategy that the program declares
  std::string grid;                     ///< replaces the grid of the strategy; "" for none
  std::vector<std::string> rules;       ///< "layer: output", added after the rules of the strategy
  std::vector<std::string> strategies;  ///< compare, calibrate: strategy files
  TrainerOptions trainer;
  DeviceOptions device;
  std::string json;          ///< file for the results; "" for none
  std::string machine;       ///< machine file; "" for the default machine
  double scale_compute = 1;  ///< factor of all predicted computing times
  int thread_ranks = 0;      ///< number of ranks that are threads of this process; 0: ranks are processes
  int timeout = 600;         ///< seconds that a rank waits for other ranks at most; 0: no limit
  int wait_note = 30;        ///< seconds after which a waiting rank says for whom it waits; 0: never
};

/// In a program that declares a strategy: the names that stand for it, and for no strategy, where a file can be named.
inline constexpr std::string_view declared_strategy = "declared", no_strategy = "none";

/// Which options of the group "Model and strategy" a verb has.
struct ModelGroup {
  bool strategy = true;                       ///< --strategy, --grid and --rule
  std::vector<std::string>* grids = nullptr;  ///< --grid takes several grids, which go here
  bool memory_limit = true;                   ///< --memory-limit
  bool machine = true;                        ///< its default is the memory of the --machine file
};
boost::program_options::options_description model_options(Options& o, const Program& program, const ModelGroup& has);
/// The group "Workload", with --dtype.
boost::program_options::options_description workload_options(Options& o);
boost::program_options::options_description optimizer_options(Options& o);
/// The machine by which steps are priced.
boost::program_options::options_description price_options(Options& o);
/// How ranks compute and wait, for every verb that runs on ranks.
boost::program_options::options_description rank_options(Options& o);
/// Adds the four groups of a verb that prices steps: model, workload, optimizer and machine.
void add_priced(boost::program_options::options_description& all, Options& o, const Program& program,
                const ModelGroup& has = {});
/// Adds --dtype.
void add_dtype(boost::program_options::options_description& group, Options& o);
/// Adds --ranks, the number of ranks that are threads.
void add_thread_ranks(boost::program_options::options_description& group, Options& o);

/// Checks these options, and settles what follows from several of them. Throws Error for what is not allowed.
void settle(Options& o, const Program& program, const CommandLine& line);
/// The same for a verb that runs on ranks: also decides whether they are threads, and how tensors travel between their
/// cards. Throws Error also if --ranks and other options, or the processes that a launcher started, do not fit
/// together.
void settle_on_ranks(Options& o, const Program& program, const CommandLine& line);
RankSettings rank_settings(const Options& o);

/// The strategy files and the machine file that the options name.
std::vector<NamedFile> strategy_files(const Options& options);

/// A verb with a model. `Own` is a struct of options that derives from Options.
template <class Own>
class ModelCommand : public Command {
 public:
  explicit ModelCommand(const Program& program) : program_(program) {}
  RankSettings ranks() const final { return rank_settings(options_); }

 protected:
  const Program& program_;
  Own options_;
};

}  // namespace partita::cli
