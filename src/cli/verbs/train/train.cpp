#include "src/cli/verbs/train/train.hpp"

#include "partita/base/clock.hpp"
#include "partita/base/error.hpp"
#include "partita/strategies/cost/estimate.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "src/cli/support/conditions.hpp"
#include "src/cli/support/idle_axes.hpp"
#include "src/cli/support/json.hpp"
#include "src/cli/support/machine_files.hpp"
#include "src/cli/support/open_data.hpp"
#include "src/cli/support/profile.hpp"
#include "src/cli/support/progress.hpp"
#include "src/cli/support/schedule_report.hpp"
#include "src/cli/support/text_file.hpp"
#include "src/cli/support/trace.hpp"
#include "src/cli/support/unfit.hpp"
#include "src/cli/verbs/train/checkpoints.hpp"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <map>
#include <utility>

namespace partita::cli {

namespace {

/// What a rank sets up before training.
struct Setup {
  Model model;
  Strategy strategy;
  std::unique_ptr<Dataset> training, test;
  std::optional<CheckpointFile> checkpoint;  ///< of --load
  std::vector<std::string> notes;            ///< about what it holds
  std::optional<std::uint64_t> replaceable;  ///< on rank 0: of check_replaceable()
};

/// Throws Error if a rank would exceed the memory limit in the run that the options ask for.
void check_run_fits(const Options& options, const Setup& setup, const Plan& plan, const Strategy& given,
                    const MachineFiles& files, const Communicator& world) {
  const Index limit = limit_of(options, files.machine);
  if (limit == 0) return;
  check_fits(plan, setup.model, given, files, limit);  // a step first, as explain and compare do
  std::vector<DataPass> passes;
  if (setup.training) passes.push_back({setup.training.get(), true, options.trainer.augmentation});
  if (setup.test) passes.push_back({setup.test.get(), false});
  std::map<std::pair<Index, bool>, Plan> plans{{{options.trainer.batch, options.trainer.training}, plan}};
  const Strategy pinned = pin_weight_layouts(setup.strategy, plan);
  const RunMemory memory(options.trainer.batch, options.trainer.training,
                         [&](Index batch, bool training) -> const Plan& {
                           auto& known = plans[{batch, training}];
                           Workload workload = make_workload(options);
                           workload.batch = batch;
                           workload.training = training;
                           if (known.layers.empty()) known = bind(setup.model, pinned, workload);
                           return known;
                         });
  check_fits(plan, setup.model, given, files, limit, [&](int rank) {
    return memory.peak(passes, memory.shared_bytes(passes, world, rank), rank, !options.save.empty(),
                       !options.load.empty());
  });
}

/// Sets up a rank without communication, except that an Error on any rank becomes the same Error on all ranks.
/// Completes the options from the checkpoint that training continues. Collective: every rank of `world` calls it.
Setup set_up(Options& options, const ModelFactory& factory, Communicator& world) {
  Setup setup;
  agree_or_throw(world, [&] {
    setup.model = make_model(options, factory);
    setup.checkpoint = open_checkpoint(options, setup.notes);
    const Strategy given = make_strategy(options, world.size());
    if (world.rank() == 0) note_renamed_keys(given);
    check_ranks(given, world.size());
    const MachineFiles files = load_machine(options);
    setup.strategy = with_stages_placed(options, setup.model, given, files);
    const Plan plan = bind(setup.model, setup.strategy, make_workload(options));
    for (std::size_t i = 0; i < plan.layers.size(); ++i)
      static_cast<void>(
          make_kernel(plan.layers[i], std::min(world.rank(), plan.grid_of(static_cast<int>(i)).size() - 1)));
    static_cast<void>(make_backend(options.trainer.backend, options.trainer.dtype, options.trainer.threads));
    if (options.verb == "train") setup.training = open_data(options, setup.model, true);
    if (options.test) setup.test = open_data(options, setup.model, false);
    check_run_fits(options, setup, plan, given, files, world);
    if (options.verb == "evaluate" && options.load.empty()) fail("evaluate needs a checkpoint: --load FILE");
    if (world.rank() == 0) {
      check_writable({{"--json", options.json}, {"--save", options.save}, {"--trace", options.trace}},
                     strategy_files(options));
      check_writable({{"--json", options.json}, {"--trace", options.trace}}, {{"--load", options.load}});
      check_no_stream("--save", options.save);
      setup.replaceable = check_replaceable(options);
    }
  });
  return setup;
}

/// Prints one line with the process number of each rank, since launchers name a dead rank by its process number.
/// Collective: every rank of `world` calls it.
void print_ranks(Communicator& world) {
  constexpr int shown = 64;
  std::vector<std::int32_t> pids(static_cast<std::size_t>(world.size()));
  const std::vector<Index> counts(pids.size(), 1);
  const auto mine = static_cast<std::int32_t>(getpid());
  world.all_gather(&mine, pids.data(), counts, DType::i32, {}).wait();
  if (world.rank() != 0) return;
  std::string text;
  for (std::size_t rank = 0; rank < pids.size() && rank < shown; ++rank)
    text += fmt::format(" {}:{}", rank, pids[rank]);
  fmt::print("ranks      {} (rank:pid{}{})\n", pids.size(), text, pids.size() > shown ? " ..." : "");
}

/// Returns e.g. `grid "data=2"`, or `2 stages, grids "data=2", "c=2"` for several stages.
std::string print_grids(const Plan& plan) {
  if (plan.grids.size() == 1) return fmt::format("grid \"{}\"", plan.grid().print());
  std::string text;
  for (const auto& grid : plan.grids) text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", grid.print());
  return fmt::format("{} stages, grids {}", plan.grids.size(), text);
}

void print_header(const Options& options, Trainer& trainer, const Setup& setup) {
  const auto& plan = trainer.plan();
  fmt::print("model      {} ({} weights)\n", setup.model.name(), setup.model.weights());
  fmt::print("strategy   {}, {}\n", options.strategy.empty() ? "from the command line" : options.strategy,
             print_grids(plan));
  const std::string cut =
      plan.microbatches > 1 ? fmt::format(" in {} microbatches ({})", plan.microbatches, plan.schedule.kind) : "";
  fmt::print("workload   batch {}{}, {}{}\n", options.trainer.batch, cut, name(options.trainer.dtype),
             plan.workload.training ? ", " + options.trainer.optimizer.print() : "");
  for (const auto& note : microbatch_notes(setup.strategy, plan)) fmt::print("note       {}\n", note);
  for (const auto& note : idle_axis_notes(plan)) fmt::print("note       {}\n", note);
  std::fflush(stdout);  // so that the user sees that the run has begun
}

struct Totals {
  Traffic predicted, measured;                      ///< sums over all ranks
  Index predicted_memory = 0, measured_memory = 0;  ///< peak bytes, maximum over all ranks
};

Totals totals(Trainer& trainer, Communicator& world) {
  const Traffic predicted = trainer.predicted(), measured = trainer.measured();
  std::array<double, 4> sums{static_cast<double>(predicted.messages), static_cast<double>(predicted.bytes),
                             static_cast<double>(measured.messages), static_cast<double>(measured.bytes)};
  world.all_reduce(sums.data(), 4, DType::f64, ReduceOp::sum, {}).wait();
  std::array<double, 2> memory{static_cast<double>(trainer.predicted_memory().total),
                               static_cast<double>(trainer.peak_memory().total)};
  world.all_reduce(memory.data(), 2, DType::f64, ReduceOp::max, {}).wait();
  const auto whole = [](double value) { return static_cast<Index>(value); };
  return {{whole(sums[0]), whole(sums[1])}, {whole(sums[2]), whole(sums[3])}, whole(memory[0]), whole(memory[1])};
}

Json to_json(const EpochReport& report) {
  return {{"epoch", report.epoch},
          {"steps", report.steps},
          {"samples", report.samples},
          {"loss", report.loss},
          {"accuracy", report.accuracy},
          {"seconds", report.seconds},
          {"images_per_second", report.seconds > 0 ? static_cast<double>(report.samples) / report.seconds : 0.0}};
}

void print_report(const char* what, const EpochReport& report) {
  const bool part = report.first > 0 || report.steps < report.all;
  fmt::print(
      "{} {:<3}  {}  {:.1f} s  {:.0f} images/s{}\n", what, report.epoch, print_result(report.loss, report.accuracy),
      report.seconds, static_cast<double>(report.samples) / report.seconds,
      part ? fmt::format("  (steps {} to {} of {})", report.first + 1, report.first + report.steps, report.all) : "");
  std::fflush(stdout);
}

/// One run of `train` or `evaluate`.
class Run {
 public:
  Run(const Options& options, Setup setup, Communicator& world)
      : options_(options),
        setup_(std::move(setup)),
        world_(world),
        first_(world.rank() == 0),
        bar_(first_),
        checkpoints_(options, setup_.replaceable, world),
        trainer_(setup_.model, setup_.strategy, trainer_options(), world) {}

  int operator()() {
    if (first_) print_header(options_, trainer_, setup_);
    print_ranks(world_);
    if (setup_.checkpoint) checkpoints_.load(trainer_, *setup_.checkpoint, setup_.notes);
    if (options_.test) trainer_.prepare(*setup_.test);
    json_["subject"] = options_.verb;
    json_["model"] = setup_.model.name();
    json_["strategy"] = options_.strategy;
    json_["grid"] = trainer_.plan().grid().print();
    if (trainer_.plan().grids.size() > 1) json_["stages"] = trainer_.plan().grids.size();
    json_["ranks"] = world_.size();
    json_["batch"] = options_.trainer.batch;
    json_["dtype"] = name(options_.trainer.dtype);
    json_["seed"] = options_.trainer.seed;
    const Conditions conditions = present_conditions();
    json_["conditions"] = {{"processor", conditions.processor},   {"cores", conditions.cores},
                           {"threads", options_.trainer.threads}, {"mpi", conditions.mpi},
                           {"backend", options_.trainer.backend}, {"date", conditions.date}};
    if (options_.verb == "train") train_or_say_what_stays();
    if (options_.test && !checkpoints_.stopped()) test();
    finish();
    checkpoints_.finish(trainer_);
    return 0;
  }

 private:
  TrainerOptions trainer_options() {
    auto trainer = options_.trainer;
    trainer.measuring = [this](Index done, Index all) { bar_.measuring(done, all); };
    trainer.requests = SignalWatch::take;
    return trainer;
  }

  Trainer::Progress progress(const char* what) {
    return [this, what](Index epoch, Index step, Index steps, const StepResult& result) {
      bar_.step(what, epoch, step, steps, result, options_.trainer.batch);
    };
  }

  void train_or_say_what_stays() {
    try {
      checkpoints_.watch_signals();
      train();
      checkpoints_.ignore_signals();
    } catch (const RunFailed& error) {
      throw RunFailed(error.what() + checkpoints_.kept());
    }
  }

  void train() {
    json_["epochs"] = Json::array();
    std::optional<Profile> profile;
    const Index before = trainer_.steps_done();
    if (first_ && trainer_.finished(*setup_.training)) print_nothing_left();
    Executor& executor = trainer_.executor(options_.trainer.batch, true);
    const std::size_t length = executor.actions();
    if (!options_.trace.empty()) executor.record(&actions_);
    while (!trainer_.finished(*setup_.training) && !checkpoints_.stopped()) {
      if (options_.profile && !profile) profile.emplace();
      const auto show = progress("epoch");
      double began = now();
      const EpochReport report =
          trainer_.train_epoch(*setup_.training, [&](Index epoch, Index step, Index steps, const StepResult& result) {
            const double ended = now();
            step_seconds_.push_back(ended - std::exchange(began, ended));
            show(epoch, step, steps, result);
            losses_.push_back(result.loss);
            if (losses_.size() == 2 && actions_.size() == 2 * length)  // drop the first step, which is slower
              actions_.erase(actions_.begin(), actions_.begin() + static_cast<std::ptrdiff_t>(length));
            if (actions_.size() >= traced_steps * length) executor.record(nullptr);
            checkpoints_.after_step(trainer_, step == steps || trainer_.finished(*setup_.training));
          });
      json_["epochs"].push_back(to_json(report));
      checkpoints_.after_epoch(trainer_);
      bar_.clear();
      if (first_) print_report("epoch", report);
    }
    executor.record(nullptr);
    json_["losses"] = losses_;
    json_["step_seconds"] = step_seconds_;
    if (!options_.trace.empty()) {
      const std::string trace = chrome_trace(trainer_.plan(), actions_, priced(), world_);
      agree_or_throw(world_, [&] {
        if (first_ && trace.empty())
          fmt::print("note       no full batch was trained; there is nothing to write to --trace {}\n", options_.trace);
        else if (first_)
          write_text("--trace", options_.trace, trace);
      });
    }
    if (profile) print_profile(*profile, trainer_.steps_done() - before, trainer_.plan().layers, world_);
  }

  /// Prints why training does not continue from the checkpoint.
  void print_nothing_left() const {
    const auto& o = options_.trainer;
    const bool by_steps = o.steps > 0 && trainer_.steps_done() >= o.steps;
    fmt::print(
        "note       nothing is left to train: {} {} done before this run, and --{} {} includes them; give a larger "
        "number\n",
        counted(trainer_.steps_done(), "step"), trainer_.steps_done() == 1 ? "was" : "were",
        by_steps ? "steps" : "epochs", by_steps ? o.steps : o.epochs);
  }

  /// The schedule simulated for the machine that --machine names; nothing without --machine.
  std::optional<Simulation> priced() {
    if (options_.machine.empty()) return std::nullopt;
    const auto [machine, times, note] = load_machine(options_);
    return estimate(trainer_.plan(), machine, times).simulation;
  }

  void test() {
    const EpochReport report = trainer_.evaluate(*setup_.test, progress("test"));
    json_["test"] = to_json(report);
    bar_.clear();
    if (first_) print_report("test ", report);
  }

  void finish() {
    const Totals totals = cli::totals(trainer_, world_);
    json_["predicted_messages"] = totals.predicted.messages;
    json_["measured_messages"] = totals.measured.messages;
    json_["predicted_bytes"] = totals.predicted.bytes;
    json_["measured_bytes"] = totals.measured.bytes;
    if (first_)
      fmt::print("moved      {} messages, {} bytes by all ranks (predicted {}, {})\n", totals.measured.messages,
                 totals.measured.bytes, totals.predicted.messages, totals.predicted.bytes);
    json_["predicted_memory"] = totals.predicted_memory;
    json_["measured_memory"] = totals.measured_memory;
    if (first_)
      fmt::print("memory     {} at most on a rank (predicted {})\n", print_bytes(totals.measured_memory),
                 print_bytes(totals.predicted_memory));
    if (const auto& kernels = trainer_.kernel_report(); first_ && !kernels.problem.empty())
      fmt::print("note       kernels were chosen by rule, without measuring: {}\n", kernels.problem);
    if (options_.verb == "train")
      json_["skipped_steps"] = trainer_.skipped_not_finite() + trainer_.skipped_beyond_f16();
    if (options_.verb == "train" && options_.trainer.dtype == DType::f16) json_["loss_scale"] = trainer_.loss_scale();
    if (first_) print_skipped();
    json_["kernels"] = trainer_.plan().kernels;
    if (options_.json.empty()) return;
    agree_or_throw(world_, [&] {
      if (first_) write_text("--json", options_.json, print_json(json_));
    });
  }

  void print_skipped() const {
    const auto left = [](Index steps) {
      return fmt::format("{} left the weights as they were", counted(steps, "step"));
    };
    if (const Index steps = trainer_.skipped_not_finite(); steps > 0)
      fmt::print("note       {}: a number was not finite\n", left(steps));
    if (options_.verb == "train" && options_.trainer.dtype == DType::f16)
      fmt::print("f16        loss scale {:g}; {}: gradients exceeded the range of f16\n", trainer_.loss_scale(),
                 left(trainer_.skipped_beyond_f16()));
  }

  const Options& options_;
  Setup setup_;
  Communicator& world_;
  bool first_;
  ProgressBar bar_;
  Checkpoints checkpoints_;
  Trainer trainer_;
  Json json_;
  std::vector<double> losses_;
  std::vector<double> step_seconds_;              // on this rank, each from the end of the previous step
  static constexpr std::size_t traced_steps = 8;  // most steps in a trace
  std::vector<TimedAction> actions_;
};

}  // namespace

int train(const Options& given, const ModelFactory& factory, Communicator& world) {
  Options options = given;
  Setup setup = set_up(options, factory, world);
  return Run(options, std::move(setup), world)();
}

}  // namespace partita::cli
