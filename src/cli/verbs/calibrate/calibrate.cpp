#include "partita/base/error.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/planner/stage_partition.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/cli/inputs/machine_files.hpp"
#include "src/cli/inputs/model_and_strategy.hpp"
#include "src/cli/options/number_option.hpp"
#include "src/cli/options/options.hpp"
#include "src/system/clock.hpp"
#include "src/system/host.hpp"
#include "src/train/measure/measure_machine.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>

namespace partita::cli {

namespace {

namespace po = boost::program_options;

struct CalibrateOptions : Options {
  std::string out;         ///< the machine file to write
  bool names_out = false;  ///< --out was given
};

po::options_description calibrate_options(CalibrateOptions& o) {
  po::options_description group("Calibrate");
  auto add = group.add_options();
  add("out", po::value(&o.out)->default_value("machine.toml")->value_name("FILE"),
      "machine file to write; kernel times go to FILE.times: they are added to that file if it belongs to this "
      "machine, else they replace it; without --out, a machine.toml without times is not replaced");
  add("strategies", po::value(&o.strategies)->multitoken()->value_name("FILE..."),
      "strategy files whose local kernels are measured; default: the strategy that --strategy, --grid and --rule give");
  return group;
}

using Plans = std::vector<std::pair<std::string, Plan>>;

/// Returns the times that an earlier run measured, or none if they belong to another machine.
KernelTimes known_times(const CalibrateOptions& options, const std::string& where) {
  const std::string path = times_path(options.out);
  if (!std::filesystem::exists(path)) return KernelTimes(where);
  KernelTimes times = KernelTimes::parse(read_text("--out", path), path);
  if (times.where() == where) return times;
  fmt::print("note       {} has times of another machine, \"{}\"; it will be replaced\n", path, times.where());
  return KernelTimes(where);
}

/// Throws Error if --out was not given and its default names a machine file that no calibration wrote: it would have
/// written kernel times beside it.
void check_default_out(const CalibrateOptions& options) {
  if (options.names_out || !std::filesystem::exists(options.out)) return;
  if (std::filesystem::exists(times_path(options.out))) return;
  fail("{} exists, and no calibration wrote it, so it is not replaced; name the file with --out", options.out);
}

void print_machine(const Machine& machine, int ranks, double seconds) {
  if (ranks == 1)
    fmt::print(
        "note       with one rank, latency and bandwidth cannot be measured and are assumed; start 2 or more ranks\n");
  std::string levels;
  for (const auto& level : machine.levels) levels += (levels.empty() ? "" : ", ") + level.name;
  fmt::print("machine    {}: {:.3g} Gflop/s and {:.3g} GB/s per rank; levels: {}; {:.1f} s\n", machine.name,
             machine.arithmetic.value / 1e9, machine.memory_bandwidth.value / 1e9, levels, seconds);
  std::fflush(stdout);
}

/// Measures the kernels that the plans need and that `times` lacks, and prints the progress.
void measure(const Plans& plans, const MeasureOptions& options, KernelTimes& times, Communicator& world) {
  const bool first = world.rank() == 0;
  std::size_t done = 0;
  for (const auto& [name, plan] : plans) {
    const double start = now();
    const auto before = times.all().size();
    times = measure_plan(plan, options, times, world);
    if (first)
      fmt::print("kernels    {} ({} of {}): {} measured, {} in total; {:.1f} s\n", name, ++done, plans.size(),
                 times.all().size() - before, times.all().size(), now() - start);
    std::fflush(stdout);
  }
}

/// Watches whether the control group of the ranks uses up its time of cores while they measure.
class QuotaWatch {
 public:
  /// Throws RunFailed on all ranks if the kernel has stopped one of them in many periods since this object was made: a
  /// message that waits for a stopped rank seems to take milliseconds. Collective: every rank of `world` calls it.
  void check(Communicator& world) const {
    constexpr double most = 0.02;  // share of the periods
    const auto quota = cpu_quota();
    double share = 0, cores = 0;
    if (quota) {
      share = static_cast<double>(quota->throttled - before_) * quota->period / std::max(now() - start_, quota->period);
      cores = quota->cores;
    }
    std::array<double, 2> worst{share, -cores};
    world.all_reduce(worst.data(), worst.size(), DType::f64, ReduceOp::max, {}).wait();
    if (worst[0] <= most) return;
    throw RunFailed(fmt::format(
        "the ranks were stopped during {:.0f}% of the time, because their control group may use {:.3g} cores, so the "
        "times are wrong and nothing was written; give it more cores (e.g. docker run --cpus), or start fewer ranks",
        100 * std::min(worst[0], 1.0), -worst[1]));
  }

 private:
  double start_ = now();
  Index before_ = cpu_quota().value_or(CpuQuota{}).throttled;
};

int calibrate(const CalibrateOptions& options, const ModelFactory& factory, Communicator& world) {
  const double start = now();
  const QuotaWatch quota;
  const bool first = world.rank() == 0;
  const MeasureOptions how = measure_options(options, world);
  KernelTimes times;
  Plans plans;
  agree_or_throw(world, [&] {
    const Model model = make_model(options, factory);
    const Workload workload = make_workload(options);
    for (const auto& [name, strategy] : make_strategies(options, world.size()))
      plans.emplace_back(name, bind(model, place_stages(model, strategy, workload, default_machine(), {}), workload));
    if (first) check_writable({{"--out", options.out}, {"--out", times_path(options.out)}}, strategy_files(options));
    if (first) note_kernels(how, options.trainer.dtype);
    if (first) check_default_out(options);
    if (first) times = known_times(options, place_of_times(how));
  });
  times = broadcast_times(times, world);
  const Machine machine = measure_machine(how, world);
  if (first) print_machine(machine, world.size(), now() - start);
  measure(plans, how, times, world);
  quota.check(world);
  agree_or_throw(world, [&] {
    if (!first) return;
    const std::string text = machine.print();
    static_cast<void>(Machine::parse(text, options.out));  // throws before writing a file that could not be read again
    write_text("--out", options.out, text);
    write_text("--out", times_path(options.out), times.print());
    fmt::print("wrote      {} and {} after {:.1f} s\n", options.out, times_path(options.out), now() - start);
  });
  return 0;
}

class Calibrate final : public ModelCommand<CalibrateOptions> {
 public:
  using ModelCommand::ModelCommand;
  void add_options(po::options_description& all) override {
    all.add(model_options(options_, program_, {.memory_limit = false}))  // it runs no whole step
        .add(workload_options(options_))
        .add(optimizer_options(options_))
        .add(calibrate_options(options_));
    po::options_description ranks = rank_options(options_);
    add_thread_ranks(ranks, options_);
    all.add(ranks);
  }
  void check(const CommandLine& line) override {
    settle_on_ranks(options_, program_, line);
    options_.names_out = line.gives("out");
  }
  int run(Communicator* world) const override { return calibrate(options_, program_.model, *world); }
};

}  // namespace

extern const VerbEntry calibrate_verb{"calibrate", "measures the machine that it runs on and writes a machine file",
                                      "mpiexec -n 2 {0} calibrate --out here.toml --strategies hybrid.toml",
                                      make<Calibrate>, VerbEntry::Ranks::always};

}  // namespace partita::cli
