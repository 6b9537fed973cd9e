#include "partita/base/error.hpp"
#include "partita/strategies/cost/cost_formula.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "src/base/plain_text.hpp"
#include "src/cli/files/child_process.hpp"
#include "src/cli/files/json.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/cli/inputs/model_and_strategy.hpp"
#include "src/cli/inputs/settle_strategy.hpp"
#include "src/cli/options/options.hpp"
#include "strategies/traces/chakra_trace.hpp"
#include "strategies/traces/simgrid_platform.hpp"
#include "strategies/traces/simgrid_trace.hpp"
#include "strategies/traces/step_walk.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string_view>

namespace partita::cli {

namespace {

namespace po = boost::program_options;

struct SimulateOptions : Options {
  std::string out;     ///< the folder for SimGrid's input; "" for none
  std::string chakra;  ///< the folder for Chakra traces; "" for none
};

po::options_description simulate_options(SimulateOptions& o) {
  po::options_description group("Simulate");
  auto add = group.add_options();
  add("out", po::value(&o.out)->value_name("DIR"),
      "folder for the platform, the list of hosts and the trace of each rank for SimGrid; it replaces older files of "
      "these names");
  add("chakra", po::value(&o.chakra)->value_name("DIR"),
      "folder for MLCommons Chakra execution traces, one for each rank, which ASTRA-sim reads; it replaces older files "
      "of these names");
  add("json", po::value(&o.json)->value_name("FILE"), "write the results to FILE as JSON");
  return group;
}

/// The platform file has a line for each pair of ranks.
constexpr int most_ranks = 1024;

/// Makes the folder. Returns its absolute path.
std::string make_folder(const char* option, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!std::filesystem::is_directory(folder))
    fail("{} {}: the folder cannot be made: {}", option, folder, error ? error.message() : "a file has this name");
  return std::filesystem::absolute(folder).lexically_normal().string();
}

/// Shows how many traces are written, on a terminal only.
void show_progress(int done, int all) {
  if (isatty(STDERR_FILENO) == 0 || all < 64) return;
  fmt::print(stderr, "\rtrace {} of {}{}", done, all, done == all ? "\r\x1b[K" : "");
}

void write_files(const Plan& plan, const Machine& machine, const KernelTimes& times, const std::string& folder) {
  const auto write = [&](const std::string& name, const std::string& text) {
    write_text("--out", folder + "/" + name, text);
  };
  std::string hosts, traces;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    const std::string name = fmt::format("rank-{}.trace", rank);
    write(name, simgrid_trace(plan, machine, times, rank));
    hosts += fmt::format("r{}\n", rank);
    traces += folder + "/" + name + "\n";
    show_progress(rank + 1, plan.ranks());
  }
  write("platform.xml", simgrid_platform(machine, plan.ranks()));
  write("hosts.txt", hosts);
  write("traces.txt", traces);
}

void write_chakra(const Plan& plan, const MachineFiles& files, const std::string& folder) {
  ChakraTraces traces(plan, files.machine, files.times);
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    write_text("--chakra", fmt::format("{}/trace.{}.et", folder, rank), traces.trace(rank));
    show_progress(rank + 1, plan.ranks());
  }
  Json groups = Json::object();
  for (const auto& [ranks, number] : traces.groups()) groups[std::to_string(number)] = ranks;
  write_text("--chakra", folder + "/comm_groups.json", print_json(groups));
}

std::vector<std::string> command(const std::string& folder, int ranks) {
  std::vector<std::string> words{"smpirun",
                                 "-np",
                                 std::to_string(ranks),
                                 "-no-privatize",  // a replay runs no code of the ranks
                                 "-platform",
                                 folder + "/platform.xml",
                                 "-hostfile",
                                 folder + "/hosts.txt",
                                 "-replay",
                                 folder + "/traces.txt"};
  for (auto& option : simgrid_options()) words.push_back(std::move(option));
  return words;
}

/// Returns the seconds after "Simulated time: ", or nothing if the text has none.
std::optional<double> simulated_seconds(std::string_view text) {
  constexpr std::string_view label = "Simulated time: ";
  const auto at = text.find(label);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + label.size());
  return parse_number<double>(text.substr(0, text.find_first_not_of("0123456789.+-e")));
}

/// Runs SimGrid on the files in the folder. Throws RunFailed if it fails.
double run_simgrid(const std::string& folder, int ranks) {
  const ChildEnd end = run_child(command(folder, ranks), folder);
  for (const char* name : {"errors.txt", "output.txt"})
    if (const auto seconds = simulated_seconds(read_text("--out", folder + "/" + name)); end.status == 0 && seconds)
      return *seconds;
  throw RunFailed(fmt::format("smpirun ended with status {} and no simulated time: {}", end.status, end.message));
}

/// The price of what the traces hold, in which only transfers between stages overlap with computing, those in which
/// nothing does and everything that can, and that in which links cost nothing.
struct Prices {
  double replayed = 0, without_overlap = 0, overlapped = 0, without_links = 0;
};

Prices prices_of(const Plan& plan, const MachineFiles& files) {
  const Machine waits = simgrid_machine(files.machine, 0), overlaps = simgrid_machine(files.machine, 1);
  const CostFormula formula(plan, waits, files.times);
  return {formula.step(waits, overlaps).seconds, formula.step(waits).seconds, formula.step(overlaps).seconds,
          seconds_of_computing(plan, files.machine, files.times)};
}

void print(const Plan& plan, const Prices& prices, const std::optional<double>& simulated) {
  const auto line = [](std::string_view what, double seconds) {
    fmt::print("{:<28}{:.4f} ms per step\n", what, seconds * 1e3);
  };
  line("price without overlap", prices.without_overlap);
  const bool stages = plan.grids.size() > 1;
  if (stages) line("price with full overlap", prices.overlapped);
  if (stages) line("price of what is replayed", prices.replayed);
  line("if links cost nothing", prices.without_links);
  if (simulated)
    fmt::print("{:<28}{:.4f} ms, {:+.1f} % of the price{}\n", "simulated by SimGrid", *simulated * 1e3,
               (*simulated / prices.replayed - 1) * 100, stages ? " of what is replayed" : " without overlap");
  if (stages) fmt::print("transfers between stages go on while ranks compute, other messages do not\n");
}

/// Notes a difference that neither overlap nor waiting explains: then the price or the simulation is wrong.
void note_difference(double simulated, double price) {
  constexpr double most = 2;
  const double factor = std::max(simulated / price, price / simulated);
  if (factor < most) return;
  std::fflush(stdout);
  fmt::print(
      stderr,
      "note: the simulation and the price differ by a factor of {:.3g}, where about 10 % is usual; one of them is "
      "wrong for this strategy: do not rely on either, and report the command\n",
      factor);
}

/// Writes SimGrid's input and runs SimGrid if it is installed. Returns the simulated seconds if it ran.
std::optional<double> simulate_by_simgrid(const SimulateOptions& options, const Plan& plan, const MachineFiles& files) {
  const std::string folder = make_folder("--out", options.out);
  const Machine machine = simgrid_machine(files.machine, 0);
  write_files(plan, machine, files.times, folder);
  fmt::print("{} on {} ranks of \"{}\": platform.xml, hosts.txt, traces.txt and {} traces are in {}\n", plan.model,
             plan.ranks(), machine.name, plan.ranks(), options.out);
  if (find_program("smpirun").empty()) {
    fmt::print("smpirun is not installed (Debian: libsimgrid-dev); with it, run\n{}\n",
               fmt::join(command(options.out, plan.ranks()), " "));
    return std::nullopt;
  }
  fmt::print("smpirun replays the traces\n");
  std::fflush(stdout);
  return run_simgrid(folder, plan.ranks());
}

int simulate(const SimulateOptions& options, const ModelFactory& factory) {
  check_writable({{"--json", options.json, FileKind::json}}, strategy_files(options));
  const Model model = make_model(options, factory);
  const MachineFiles files = load_machine(options);
  const Strategy given = make_strategy(options, 1);
  const Strategy strategy = settle_strategy(options, model, given, files).strategy;
  const Plan plan = bind(model, strategy, make_workload(options));
  if (!options.out.empty() && plan.ranks() > most_ranks)
    fail("the strategy has {} ranks; simulate --out writes a route for each pair of ranks, and takes at most {}",
         plan.ranks(), most_ranks);
  const Prices prices = prices_of(plan, files);
  if (!options.chakra.empty()) {
    write_chakra(plan, files, make_folder("--chakra", options.chakra));
    fmt::print("{} on {} ranks of \"{}\": trace.0.et to trace.{}.et and comm_groups.json are in {}\n", plan.model,
               plan.ranks(), files.machine.name, plan.ranks() - 1, options.chakra);
  }
  std::optional<double> simulated;
  if (!options.out.empty()) simulated = simulate_by_simgrid(options, plan, files);
  print(plan, prices, simulated);
  if (simulated) note_difference(*simulated, prices.replayed);
  if (!options.json.empty())
    write_text("--json", options.json,
               print_json({{"subject", "simulate"},
                           {"model", plan.model},
                           {"machine", files.machine.name},
                           {"ranks", plan.ranks()},
                           {"batch", plan.workload.batch},
                           {"predicted", prices.replayed},
                           {"predicted_without_overlap", prices.without_overlap},
                           {"predicted_overlapped", prices.overlapped},
                           {"predicted_without_links", prices.without_links},
                           {"simulated", simulated ? Json(*simulated) : Json()}}));
  return 0;
}

class Simulate final : public ModelCommand<SimulateOptions> {
 public:
  using ModelCommand::ModelCommand;
  void add_options(po::options_description& all) override {
    add_priced(all, options_, program_);
    all.add(simulate_options(options_));
  }
  void check(const CommandLine& line) override {
    if (options_.out.empty() && options_.chakra.empty())
      fail("give --out DIR for SimGrid's input, --chakra DIR for Chakra traces, or both");
    settle(options_, program_, line);
  }
  int run(Communicator*) const override { return simulate(options_, program_.model); }
};

}  // namespace

extern const VerbEntry simulate_verb{
    "simulate",
    "writes what a step computes and moves as input for SimGrid, and simulates it if SimGrid is installed: a second "
    "opinion on the price; or as Chakra traces",
    "{0} simulate --strategy hybrid.toml --machine cluster.toml --out replay", make<Simulate>};

}  // namespace partita::cli
