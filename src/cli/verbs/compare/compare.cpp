#include "partita/base/error.hpp"
#include "partita/comm/mpi.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/cli/inputs/model_and_strategy.hpp"
#include "src/cli/inputs/rank_patterns.hpp"
#include "src/cli/inputs/settle_strategy.hpp"
#include "src/cli/options/number_option.hpp"
#include "src/cli/output/causes.hpp"
#include "src/cli/output/compared.hpp"
#include "src/cli/output/plan_notes.hpp"
#include "src/cli/verbs/compare/compare_json.hpp"
#include "src/cli/verbs/compare/compare_options.hpp"
#include "src/cli/verbs/compare/curves.hpp"
#include "src/cli/verbs/compare/verdict.hpp"

#include <algorithm>

namespace partita::cli {

namespace {

namespace po = boost::program_options;

po::options_description compare_options(CompareOptions& o) {
  po::options_description group("Compare");
  auto add = group.add_options();
  add("strategies", po::value(&o.strategies)->multitoken()->value_name("FILE..."), "strategy files to compare");
  add("measure", po::bool_switch(&o.measure),
      "also train for some steps with each strategy whose number of ranks is the one that was started");
  add("ranks", number(&o.rank_counts)->multitoken()->value_name("P..."),
      "predict each strategy on these numbers of ranks, in ascending order; numbers that a grid does not divide are "
      "left out; with --measure: one number, of ranks that are threads of this process");
  add("weak", po::bool_switch(&o.weak), "with --ranks: weak scaling, --batch is the number of samples per rank");
  add("csv", po::value(&o.csv)->value_name("FILE"), "with --ranks: write the points to FILE as CSV");
  add("json", po::value(&o.json)->value_name("FILE"), "write the results to FILE as JSON");
  return group;
}

/// Takes the number of ranks of `compare --measure`, whose --ranks otherwise asks for curves.
void take_measured(CompareOptions& o) {
  if (o.rank_counts.empty()) return;
  if (o.rank_counts.size() > 1)
    fail("--measure takes one number of --ranks: the ranks are threads of this process; `scale` measures several");
  if (o.weak) fail("--weak predicts curves, and cannot be combined with --measure");
  if (!o.csv.empty()) fail("--csv {}: it holds curves, and cannot be combined with --measure", o.csv);
  o.thread_ranks = o.rank_counts.front();
  o.rank_counts.clear();
}

/// Checks the options of compare that belong to --ranks.
void check_curves(const CompareOptions& o) {
  check_rank_counts(o.rank_counts);
  if (!o.rank_counts.empty()) return;
  if (o.weak) fail("--weak needs --ranks, e.g. --ranks 1 2 4 8");
  if (!o.csv.empty()) fail("--csv {}: it needs --ranks, e.g. --ranks 1 2 4 8; --json writes the results", o.csv);
  if (o.grids.size() > 1) fail("--grid: several grids need --ranks, e.g. --ranks 1 2 4 8");
  if (!o.grids.empty() && o.grids[0].find("{}") != std::string::npos)
    fail("--grid \"{}\": {{}} needs --ranks, e.g. --ranks 1 2 4 8", o.grids[0]);
}

/// Predicts the costs of strategies and, if it has ranks, measures those that run on that number of ranks.
class Comparison {
 public:
  Comparison(const Options& options, const ModelFactory& factory, MeasureOptions measure, Communicator* world)
      : options_(options),
        files_(load_machine(options)),
        model_(make_model(options, factory)),
        workload_{options.trainer.batch, options.trainer.dtype, true, options.trainer.optimizer},
        measure_(std::move(measure)),
        world_(world) {
    if (world_) leave_times_of_others();
    given_ = files_.times;
  }

  const MachineFiles& files() const { return files_; }

  Compared price(const std::string& name, const Strategy& strategy) {
    const bool ours = world_ && strategy.ranks() == world_->size();
    if (ours && strategy.stage_count() > 1)
      measure_if_held(name, [&] {  // the stage boundaries are placed by these times
        Strategy serial;
        return bind(model_, serial.schedule("gpipe", strategy.microbatches()), workload_);
      });
    Strategy placed;
    Compared one{.name = name, .plan = {}, .cost = {}, .held = {}};
    agreed(name, [&] {
      const KernelTimes& times = ours ? files_.times : given_;
      auto [settled_strategy, choices] = settle_strategy(options_, model_, strategy, workload_, files_.machine, times);
      placed = std::move(settled_strategy);
      one.chosen = choice_note(choices);
      one.plan = bind(model_, placed, workload_);
      one.cost = estimate(one.plan, files_.machine, times);
    });
    one.held = most_held(one.cost, limit());
    if (ours && !one.fits()) agreed(name, [&] { one.cost = estimate(one.plan, files_.machine, given_); });
    if (!ours || !one.fits()) return one;
    measure(name, [&] { return one.plan; });
    agreed(name, [&] { one.cost = estimate(one.plan, files_.machine, files_.times); });
    one.measured = time_steps(model_, placed, workload_, measure_, 3, *world_);
    return one;
  }

  /// Changes that would make a strategy fit in the memory limit.
  std::vector<Remedy> remedies_of(const Strategy& strategy) const {
    return remedies(model_, strategy, workload_, files_.machine, files_.times, limit());
  }

  /// The memory limit of a rank in bytes; 0: no limit.
  Index limit() const { return limit_of(options_, files_.machine); }

  /// Sets the efficiencies relative to a step on one rank. For strategies that were run, the time on one rank comes
  /// from measured kernel times too, if the step fits in the memory of one rank.
  void add_efficiencies(std::vector<Compared>& all) {
    const Plan serial = bind(model_, Strategy(), workload_);
    const auto alone = [&](const KernelTimes& times) { return estimate(serial, files_.machine, times).seconds; };
    const bool ran = std::any_of(all.begin(), all.end(), [](const Compared& one) { return one.measured.has_value(); });
    if (ran) measure_if_held("one rank", [&] { return serial; });
    const double by_given = alone(given_), by_all = alone(files_.times);
    for (auto& one : all) one.efficiency = (one.measured ? by_all : by_given) / one.cost.seconds / one.plan.ranks();
  }

 private:
  /// Calls `make` on every rank. An Error in it becomes the same Error on all ranks and begins with the strategy's
  /// name.
  void agreed(const std::string& name, const std::function<void()>& make) const {
    const auto named = [&] {
      try {
        make();
      } catch (const Error& error) {
        if (std::string_view(error.what()).starts_with(name)) throw;
        fail("{}: {}", name, error.what());
      }
    };
    world_ ? agree_or_throw(*world_, named) : named();
  }
  /// Measures the kernels of a plan of one rank if it fits in memory. The user did not ask for this run, so without a
  /// limit of his own the memory of the assumed machine is the limit.
  void measure_if_held(const std::string& name, const std::function<Plan()>& make) {
    Plan plan;
    agreed(name, [&] { plan = make(); });
    const Index room = limit() > 0 ? limit() : static_cast<Index>(files_.machine.memory.value);
    if (peak_memory(plan, 0).total <= room) measure(name, [&] { return plan; });
  }
  void measure(const std::string& name, const std::function<Plan()>& make) {
    Plan plan;
    agreed(name, [&] { plan = make(); });
    files_.times = measure_layers(plan, world_->rank() % plan.ranks(), measure_, files_.times, *world_);
  }

  /// Drops the loaded kernel times if they come from another processor or another number of threads than this run.
  void leave_times_of_others() {
    const std::string here = place_of_times(measure_);
    if (files_.times.empty() || files_.times.where() == here) return;
    files_.note = fmt::format("{} is not used: its times come from \"{}\", but --measure runs on \"{}\"",
                              times_path(options_.machine), files_.times.where(), here);
    files_.times = KernelTimes(here);
  }

  const Options& options_;
  MachineFiles files_;
  KernelTimes given_;  // the times of files_ before this run measured any
  Model model_;
  Workload workload_;
  MeasureOptions measure_;
  Communicator* world_;
};

void print_head(std::size_t width, bool ran) {
  fmt::print("{:<{}}  {:>5} {:>10} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>10} {:>6} {:>9} {:>9}", "strategy", width,
             "ranks", "ms/step", "compute", "comm.", "gradients", "update", "bubble", "(hidden)", "samples/s", "effic.",
             "MiB sent", "MiB held");
  fmt::print("{}\n", ran ? fmt::format(" {:>10} {:>7} {:>7}", "measured", "spread", "error") : "");
}

void print_row(const Compared& one, std::size_t width) {
  const auto& p = one.cost.parts;
  fmt::print(
      "{:<{}}  {:>5} {:>10.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>8.3f} {:>8.3f} {:>8.3f} {:>10} {:>5.0f}% {:>9.1f} "
      "{:>9.1f}",
      one.name, width, one.plan.ranks(), one.cost.seconds * ms, p.passes.compute * ms,
      (p.passes.communication() + p.transfers) * ms, p.grad_reduce * ms, p.update * ms, p.bubble * ms, p.hidden * ms,
      print_rate(one.cost.samples_per_second), 100 * one.efficiency, one.cost.sent / mib,
      static_cast<double>(one.cost.memory.total) / mib);
  if (one.measured)
    fmt::print(" {:>10.3f} {:>6.1f}% {:>+6.1f}%", one.measured->median * ms, 100 * one.measured->spread,
               100 * one.error());
  fmt::print("\n");
}

/// Prints which layers each stage has: "stages of s: a to b | c to d". If a stage runs several groups, prints the stage
/// of each group.
void print_groups(const Compared& one) {
  const Plan& plan = one.plan;
  const bool one_each = plan.stage_of_group.size() == plan.grids.size();
  const auto& layers = plan.layers;
  std::string text;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (i == 0 || layers[i].group != layers[i - 1].group)
      text += fmt::format("{}{} to ", i == 0 ? "" : " | ", layers[i].name);
    if (i + 1 < layers.size() && layers[i].group == layers[i + 1].group) continue;
    text += layers[i].name;
    if (!one_each) text += fmt::format(" on stage {}", plan.stage_of(static_cast<int>(i)));
  }
  fmt::print("{} of {}: {}\n", one_each ? "stages" : "groups", one.name, text);
}

/// Prints how many steps of --measure were left out because the cores were busy with other work.
void print_disturbed(const std::vector<Compared>& all) {
  int left_out = 0, steps = 0;
  for (const auto& one : all) {
    if (!one.measured) continue;
    left_out += one.measured->disturbed;
    steps += one.measured->disturbed + one.measured->steps;
  }
  if (left_out > 0)
    fmt::print("{} of {} steps are not counted: the cores did other work at the time\n", left_out, steps);
}

/// Prints which strategies --measure could not run, and why.
void print_not_run(const std::vector<Compared>& all, int ranks) {
  bool ran = false;
  for (const auto& one : all) {
    ran = ran || one.measured;
    if (one.measured) continue;
    const int needed = one.plan.ranks();
    if (needed == ranks)
      fmt::print("{} was not run: it does not fit in memory\n", one.name);
    else
      fmt::print("{} was not run: it needs {}, but {} {} started; {}\n", one.name, counted(needed, "rank"), ranks,
                 ranks == 1 ? "was" : "were", how_to_start(needed));
  }
  if (!ran) fmt::print("nothing was measured\n");
}

/// Prints how many layers have measured kernel times: over all strategies and, if only some layers have, per strategy.
void print_kernels(const std::vector<Compared>& all) {
  std::size_t timed = 0, layers = 0;
  std::string each;
  for (const auto& one : all) {
    const auto& costs = one.cost.layers;
    const auto of = std::count_if(costs.begin(), costs.end(), [](const LayerCost& cost) { return cost.measured; });
    timed += static_cast<std::size_t>(of);
    layers += costs.size();
    each += fmt::format("{}{} {} of {}", each.empty() ? "" : ", ", one.name, of, costs.size());
  }
  const bool mixed = all.size() > 1 && timed > 0 && timed < layers;
  fmt::print("kernels  {} of {} layers use measured times{}, the others use the machine's rates\n\n", timed, layers,
             mixed ? fmt::format(" ({})", each) : "");
}

void print_table(const std::vector<Compared>& all, const MachineFiles& files) {
  std::size_t width = 8;
  for (const auto& one : all) width = std::max(width, one.name.size());
  fmt::print("machine  {}\n", files.machine.name);
  if (!files.note.empty()) fmt::print("note     {}\n", files.note);
  print_kernels(all);
  print_head(width, std::any_of(all.begin(), all.end(), [](const Compared& one) { return one.measured.has_value(); }));
  for (const auto& one : all) print_row(one, width);
  fmt::print("\n");
  for (const auto& one : all) {
    if (one.plan.grids.size() > 1) print_groups(one);
    for (const auto& note : plan_notes(one.plan)) fmt::print("note     {}: {}\n", one.name, note);
    if (const auto text = print(large_causes(one.plan, one.cost), one.cost.seconds); !text.empty())
      fmt::print("causes   {}: {}\n", one.name, text);
    if (!one.chosen.empty()) fmt::print("chosen   {}: {}\n", one.name, one.chosen);
  }
}

int compare(const CompareOptions& options, const ModelFactory& factory, Communicator* world) {
  if (!options.rank_counts.empty()) return compare_curves(options, factory);
  const bool first = !world || world->rank() == 0;
  const MeasureOptions how = world ? measure_options(options, *world) : measure_options(options);
  std::optional<Comparison> comparison;
  std::vector<std::pair<std::string, Strategy>> strategies;
  const auto prepare = [&] {
    comparison.emplace(options, factory, how, world);
    strategies = make_strategies(options, world ? world->size() : 1);
    if (first) check_writable({{"--json", options.json, FileKind::json}}, strategy_files(options));
    if (world && first) note_kernels(how, options.trainer.dtype);
  };
  world ? agree_or_throw(*world, prepare) : prepare();
  std::vector<Compared> all;
  for (const auto& [name, strategy] : strategies) all.push_back(comparison->price(name, strategy));
  comparison->add_efficiencies(all);
  // All ranks compute the remedies, after the last measurement. If only rank 0 did, the others would wait for it.
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!all[i].fits()) all[i].remedies = comparison->remedies_of(strategies[i].second);
  const MachineFiles& files = comparison->files();
  const Index limit = comparison->limit();
  const bool none = std::none_of(all.begin(), all.end(), [](const Compared& one) { return one.fits(); });
  const std::string unfit = fmt::format("no strategy fits in {} per rank", print_bytes(limit));
  if (!first && none) throw AgreedError(unfit);
  if (!first) return 0;
  print_table(all, files);
  print_disturbed(all);
  if (world) print_not_run(all, world->size());
  fmt::print("{}{}", print_unfit(all, limit), print_verdict(all));
  for (const auto& warning : warnings(all)) fmt::print("warning: {}\n", warning);
  if (!options.json.empty()) write_text("--json", options.json, print_json(to_json(options, files, all, limit)));
  std::fflush(stdout);
  if (none) throw AgreedError(unfit);
  return 0;
}

class Compare final : public ModelCommand<CompareOptions> {
 public:
  using ModelCommand::ModelCommand;
  void add_options(po::options_description& all) override {
    add_priced(all, options_, program_, {.grids = &options_.grids});
    all.add(compare_options(options_)).add(rank_options(options_));
  }
  void check(const CommandLine& line) override {
    if (options_.measure) take_measured(options_);
    options_.measure ? settle_on_ranks(options_, program_, line) : settle(options_, program_, line);
    check_curves(options_);
    if (options_.grids.size() == 1 && options_.rank_counts.empty()) options_.grid = options_.grids[0];
  }
  int run(Communicator* world) const override { return compare(options_, program_.model, world); }
};

}  // namespace

extern const VerbEntry compare_verb{"compare",
                                    "predicts the step times of several strategies, and says which is fastest and why",
                                    "{0} compare --strategies hybrid.toml spatial.toml --machine cluster.toml",
                                    make<Compare>, VerbEntry::Ranks::to_measure};

}  // namespace partita::cli
