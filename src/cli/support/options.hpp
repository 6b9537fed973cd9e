#pragma once

#include "partita/base/profile.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "partita/strategies/planner/planner.hpp"
#include "partita/train/run/trainer.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace partita::cli {

/// Samples of a batch or a set, at most.
inline constexpr Index most_samples = Index{1} << 31;

/// The names of the schedules that the planner tries by default.
std::vector<std::string> default_kinds();

/// Everything that the command line can say; what a verb does not take it refuses.
struct Options {
  std::string verb;
  std::string model = "fashion-cnn";
  ModelSize size;                  ///< of the built-in model
  std::string strategy;            ///< a file, or "" for none
  std::string grid;                ///< replaces the strategy's grid
  std::vector<std::string> rules;  ///< "layer: output", after the strategy's
  std::string data = "fashion-mnist";
  std::string data_dir;
  Index samples = 0;  ///< of the synthetic set; 0: the default
  TrainerOptions trainer;
  std::string json, save, load, trace;
  int timeout = 600;  ///< seconds that a rank waits for others at most; 0: no limit
  int rank = 0;       ///< explain: whose messages, bytes and memory
  bool test = true;   ///< train: evaluate at the end
  bool evaluation = false;
  bool picture = false;
  std::string svg;                                   ///< explain: a drawing of the schedule
  bool profile = false;                              ///< train: where the time goes
  std::string machine;                               ///< a machine file, or "" for the default
  std::string out;                                   ///< calibrate: the machine file to write
  std::vector<std::string> strategies;               ///< compare, calibrate: files
  bool measure = false;                              ///< compare: run them too
  int ranks = 0;                                     ///< plan: for so many
  int best = 3;                                      ///< plan: strategies to write
  int examined = PlannerOptions().examined;          ///< plan: candidates to price whole
  std::vector<std::string> kinds = default_kinds();  ///< plan: schedules of several stages
  std::vector<std::string> why_not;                  ///< plan: rules that are priced too
  std::string why;                                   ///< explain: the layer whose price is to be shown
};

/// A function that makes the model, or nothing where `--model` chooses a built-in one.
using ModelFactory = std::function<Model()>;

/// Reads the command line. Returns nothing if it asked for help or the version, which is then in `answer`.
/// Throws Error for what cannot be read, with the nearest option's name.
std::optional<Options> parse_options(int argc, char** argv, bool builtin, std::string& answer);

Model make_model(const Options& options, const ModelFactory& factory);
/// The strategy that the options describe; without any, `ranks` share the samples.
Strategy make_strategy(const Options& options, int ranks);
/// Prints one line on standard error for each key of the strategy's file that has a new name. One rank calls it.
void note_renamed_keys(const Strategy& strategy);
/// Adds the rules that `option` gave, as "conv*: N@data H".
void add_rules(Strategy& strategy, const std::vector<std::string>& rules, std::string_view option);
/// The strategies that the options name, each with its own file's name; without any, what make_strategy says.
std::vector<std::pair<std::string, Strategy>> make_strategies(const Options& options, int ranks);
/// The data set's training or test part, for a model's input.
std::unique_ptr<Dataset> open_data(const Options& options, const Model& model, bool training);

/// Verbs; they return the exit status.
int explain(const Options& options, const ModelFactory& factory);
int train(const Options& options, const ModelFactory& factory, Communicator& world);

int plan(const Options& options, const ModelFactory& factory);
int calibrate(const Options& options, const ModelFactory& factory, Communicator& world);
/// `world` is null unless strategies are measured.
int compare(const Options& options, const ModelFactory& factory, Communicator* world);

/// Generates or reads a schedule and prints what it costs; it has options of its own, and no ranks.
int schedule(int argc, char** argv);
/// Writes an HTML page of what train, scale and compare wrote as JSON; it has options of its own, and no ranks.
int report(int argc, char** argv);
/// Trains under several strategies on several rank counts, each a job of its own under mpiexec, and prints how the speed
/// scales; it has options of its own beside those of train.
int scale(int argc, char** argv, const ModelFactory& factory);

/// Prints on rank 0 where the time of `steps` steps went: by layer on rank 0, by rank in all. Collective.
void print_profile(Profile& profile, Index steps, const std::vector<LayerPlan>& layers, Communicator& world);

/// e.g. "loss 0.2591  accuracy 90.55%"; without the accuracy where there is none.
std::string print_result(double loss, double accuracy);

/// Progress on a terminal as a bar that moves, elsewhere as plain lines now and then. One on rank 0 only.
class ProgressBar {
 public:
  explicit ProgressBar(bool shown);
  void step(const char* what, Index epoch, Index step, Index steps, const StepResult& result, Index batch);
  /// Before the first step: kernels are measured, of `all` on this rank.
  void measuring(Index done, Index all);
  /// Ends the bar's line.
  void clear();

 private:
  bool shown_, terminal_;
  Index first_ = 0, last_ = 0;  // steps of the current pass
  double started_ = 0, printed_ = 0;
};

}  // namespace partita::cli
