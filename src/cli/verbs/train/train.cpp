#include "partita/base/error.hpp"
#include "partita/strategies/cost/estimate.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/cli/inputs/machine_files.hpp"
#include "src/cli/inputs/model_and_strategy.hpp"
#include "src/cli/options/train_options.hpp"
#include "src/cli/output/plan_notes.hpp"
#include "src/cli/output/schedule_report.hpp"
#include "src/cli/verbs/train/batch.hpp"
#include "src/cli/verbs/train/best_epoch.hpp"
#include "src/cli/verbs/train/checkpoints.hpp"
#include "src/cli/verbs/train/delays.hpp"
#include "src/cli/verbs/train/event_file.hpp"
#include "src/cli/verbs/train/profile.hpp"
#include "src/cli/verbs/train/progress.hpp"
#include "src/cli/verbs/train/results.hpp"
#include "src/cli/verbs/train/set_up.hpp"
#include "src/cli/verbs/train/step_log.hpp"
#include "src/cli/verbs/train/trace.hpp"
#include "src/system/clock.hpp"
#include "src/system/real_path.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace partita::cli {

namespace {

constexpr const char* best_note = "validation";  // of BestEpoch, in checkpoints

/// Prints one line with the process number of each rank, since launchers name a dead rank by its process number.
/// Collective: every rank of `world` calls it.
void print_ranks(const TrainOptions& options, Communicator& world) {
  if (options.thread_ranks > 0) {
    if (world.rank() == 0) fmt::print("ranks      {} (threads of process {})\n", world.size(), getpid());
    return;
  }
  constexpr int shown = 64;
  const std::vector<double> pids = gather_numbers(world, getpid());
  if (world.rank() != 0) return;
  std::string text;
  for (std::size_t rank = 0; rank < pids.size() && rank < shown; ++rank)
    text += fmt::format(" {}:{:.0f}", rank, pids[rank]);
  fmt::print("ranks      {} (rank:pid{}{})\n", pids.size(), text, pids.size() > shown ? " ..." : "");
}

/// Returns e.g. `grid "data=2"`, or `2 stages, grids "data=2", "c=2"` for several stages.
std::string print_grids(const Plan& plan) {
  if (plan.grids.size() == 1) return fmt::format("grid \"{}\"", plan.grid().print());
  std::string text;
  for (const auto& grid : plan.grids) text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", grid.print());
  return fmt::format("{} stages, grids {}", plan.grids.size(), text);
}

void print_header(const TrainOptions& options, Trainer& trainer, const Setup& setup) {
  const auto& plan = trainer.plan();
  fmt::print("model      {} ({} weights)\n", setup.model.name(), setup.model.weights());
  fmt::print("strategy   {}, {}\n", names_strategy(options) ? options.strategy : "from the command line",
             print_grids(plan));
  const std::string cut =
      plan.microbatches > 1 ? fmt::format(" in {} microbatches ({})", plan.microbatches, plan.schedule.kind) : "";
  fmt::print("workload   batch {}{}, {}{}\n", options.trainer.batch, cut, name(options.trainer.dtype),
             plan.workload.training ? ", " + options.trainer.optimizer.print() : "");
  if (setup.held_out)
    fmt::print("validation {} of {} samples are held out\n", setup.held_out->size(),
               setup.held_out->size() + setup.training->size());
  for (const auto& note : microbatch_notes(setup.strategy, plan)) fmt::print("note       {}\n", note);
  for (const auto& note : plan_notes(plan)) fmt::print("note       {}\n", note);
  if (!setup.chosen.empty()) fmt::print("chosen     {}\n", setup.chosen);
  for (const auto& note : setup.rate_notes) fmt::print("note       {}\n", note);
  std::fflush(stdout);  // so that the user sees that the run has begun
}

/// One run of `train` or `evaluate`.
class Run {
 public:
  Run(const TrainOptions& options, Setup setup, Communicator& world)
      : options_(options),
        setup_(std::move(setup)),
        world_(world),
        first_(world.rank() == 0),
        bar_(first_),
        delays_(options, world),
        checkpoints_(options, setup_.replaceable, world),
        trainer_(setup_.model, setup_.strategy, trainer_options(), world, processor()),
        best_(options.watch.patience) {}

  int operator()() {
    if (first_) print_header(options_, trainer_, setup_);
    print_ranks(options_, world_);
    if (setup_.checkpoint) checkpoints_.load(trainer_, *setup_.checkpoint, setup_.notes);
    if (options_.test) trainer_.prepare(*setup_.test);
    results_.emplace(options_, setup_.model, trainer_, world_);
    if (options_.verb == "train") train_or_say_what_stays();
    if (options_.test && !checkpoints_.stopped()) test();
    results_->set_delays(delays_.seconds_of_ranks(world_));
    results_->finish(!checkpoints_.stopped());
    checkpoints_.finish(trainer_);
    return 0;
  }

 private:
  TrainerOptions trainer_options() {
    auto trainer = options_.trainer;
    trainer.measuring = [this](Index done, Index all) { bar_.count("measuring kernels", done, all); };
    trainer.requests = [this] { return checkpoints_.requests(); };
    trainer.check_replicas = options_.watch.check_replicas;
    return trainer;
  }

  Processor processor() const {
    const TrainerOptions& trainer = options_.trainer;
    if (setup_.device) return make_processor(*setup_.device, options_.device, trainer.dtype, world_);
    return cpu_processor(world_, make_backend(trainer.backend, trainer.dtype, trainer.threads));
  }

  /// Passes each step of a pass over `data` to `show`, with the time since the previous step. Training waits before
  /// each step if --delay says so; the step's time includes that.
  Trainer::Progress progress(const Dataset& data, bool training, std::function<void(const StepRecord&)> show) {
    const double start = now();
    if (training) delays_.wait(trainer_.steps_done());
    return [this, &data, training, show = std::move(show), began = start](Index epoch, Index step, Index steps,
                                                                          const StepResult& result) mutable {
      const double ended = now();
      const Index batch = options_.trainer.batch;
      show({.epoch = epoch,
            .step = step,
            .steps = steps,
            .done = trainer_.steps_done(),
            .left = training ? trainer_.all_steps(data) - trainer_.steps_done() : steps - step,
            .samples = std::min(batch, data.size() - (step - 1) * batch),
            .result = result,
            .learning_rate = training ? trainer_.last_rate() : 0,
            .seconds = ended - std::exchange(began, ended)});
      const bool last = step == steps || checkpoints_.stopped() || trainer_.finished(data);
      if (training && !last) delays_.wait(trainer_.steps_done());
    };
  }

  /// Evaluates on `data`; `what` is the word that the line of progress begins with.
  EpochReport evaluate(Dataset& data, const char* what) {
    const EpochReport report =
        trainer_.evaluate(data, progress(data, false, [&](const StepRecord& step) { bar_.step(what, step); }));
    bar_.clear();
    return report;
  }

  void train_or_say_what_stays() {
    try {
      checkpoints_.before_training();
      train();
      checkpoints_.after_training();
    } catch (const RunFailed& error) {
      throw RunFailed(error.what() + checkpoints_.kept());
    }
  }

  void train() {
    std::optional<Profile> profile;
    const Index before = trainer_.steps_done();
    if (const auto found = trainer_.notes().find(best_note); found != trainer_.notes().end())
      best_.restore(found->second);
    results_->set_best(best_);
    const bool nothing_left = done();
    if (first_ && nothing_left) print_nothing_left();
    agree_or_throw(world_, [&] { open_curves(before); });
    record_actions();
    while (!done() && !checkpoints_.stopped()) {
      if (options_.profile && !profile) profile.emplace(trainer_.device(), trainer_.stream());
      train_epoch();
    }
    trainer_.record(nullptr);
    if (nothing_left && real_path(options_.load) != real_path(options_.save)) save();
    if (!options_.trace.empty()) write_trace();
    if (profile) print_profile(*profile, trainer_.steps_done() - before, trainer_.plan().layers, world_);
  }

  /// True if nothing is left to train, or the validation loss has not fallen for long.
  bool done() const { return trainer_.finished(*setup_.training) || best_.exhausted(); }

  void train_epoch() {
    const EpochReport report =
        trainer_.train_epoch(*setup_.training, progress(*setup_.training, true, [&](const StepRecord& step) {
          add_step(step);
          const bool last = step.step == step.steps || trainer_.finished(*setup_.training);
          if (checkpoints_.is_due(trainer_, last)) save();
        }));
    bar_.clear();
    results_->add_epoch(report);
    const bool whole = report.first + report.steps == report.all;  // else a run that resumes it would validate it again
    if (options_.watch.validates() && whole) validate();
    save();
    if (first_ && best_.exhausted()) print_early_stop();
  }

  /// Saves the results and then the checkpoint, so that a run that continues from it finds all results before it. What
  /// a run saves at its end was checked.
  void save() {
    if (options_.watch.check_replicas != 0 && (done() || checkpoints_.stopped())) trainer_.check_replicas();
    results_->write_so_far();
    checkpoints_.save(trainer_);
  }

  void add_step(const StepRecord& step) {
    results_->add(step);
    bar_.step("epoch", step);
    drop_first_action();
    if (log_) log_->add(step);
    if (events_)
      events_->add(step.done, {{"train/loss", step.result.loss},
                               {"train/accuracy", step.result.accuracy},
                               {"train/learning_rate", step.learning_rate},
                               {"train/gradient_norm", step.result.gradient_norm},
                               {"train/images_per_second", static_cast<double>(step.samples) / step.seconds}});
  }

  /// Opens the files of the curves on rank 0.
  void open_curves(Index steps_done) {
    if (!first_) return;
    if (!options_.watch.log.empty()) log_.emplace(options_.watch.log, steps_done);
    if (!options_.watch.tensorboard.empty()) events_.emplace(options_.watch.tensorboard, steps_done);
  }

  void validate() {
    const EpochReport report = evaluate(options_.watch.validates_on_test() ? *setup_.test : *setup_.held_out, "valid");
    double loss = report.loss;  // replicas may differ in the last bit, and all ranks must decide alike
    world_.broadcast(&loss, 1, DType::f64, 0, {}).wait();
    const bool lowest = best_.add(report.epoch, loss);
    trainer_.notes()[best_note] = best_.print();
    results_->add_validation(report, best_);
    if (lowest && !options_.watch.best.empty()) {
      results_->write_so_far();
      trainer_.save(options_.watch.best);
    }
    if (!events_) return;
    std::vector<Scalar> scalars{{"validation/loss", report.loss}, {"validation/accuracy", report.accuracy}};
    if (report.counts.has_top5()) scalars.emplace_back("validation/top5", report.counts.top5());
    events_->add(trainer_.steps_done(), scalars);
  }

  void print_early_stop() const {
    fmt::print("note       stopped early: no validation loss of the last {} was below {:.4f}, that of epoch {}\n",
               counted(options_.watch.patience, "epoch"), best_.loss(), best_.epoch());
  }

  /// Lets the trainer record the actions of whole batches for --trace.
  void record_actions() {
    if (!options_.trace.empty()) trainer_.record(&actions_);
  }

  /// Drops the actions of the first step, which is slower, and stops recording after traced_steps steps.
  void drop_first_action() {
    if (options_.trace.empty()) return;
    const Plan& plan = trainer_.plan();
    const std::size_t length = plan.schedule.stages[plan.stage_of_rank(world_.rank())].size();
    if (results_->losses().size() == 2 && actions_.size() == 2 * length)
      actions_.erase(actions_.begin(), actions_.begin() + static_cast<std::ptrdiff_t>(length));
    if (actions_.size() >= traced_steps * length) trainer_.record(nullptr);
  }

  void write_trace() {
    const std::string trace = chrome_trace(trainer_.plan(), actions_, delays_.all(), priced(), world_);
    agree_or_throw(world_, [&] {
      if (first_ && trace.empty())
        fmt::print("note       no full batch was trained; there is nothing to write to --trace {}\n", options_.trace);
      else if (first_)
        write_text("--trace", options_.trace, trace);
    });
  }

  /// Prints why training does not continue from the checkpoint.
  void print_nothing_left() const {
    if (best_.exhausted()) {
      fmt::print(
          "note       nothing is left to train: the validation loss has not fallen for {}, which is what --patience "
          "allows; give a larger number\n",
          counted(options_.watch.patience, "epoch"));
      return;
    }
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

  void test() { results_->add_test(evaluate(*setup_.test, "test")); }

  const TrainOptions& options_;
  Setup setup_;
  Communicator& world_;
  bool first_;
  ProgressBar bar_;
  Delays delays_;
  Checkpoints checkpoints_;
  Trainer trainer_;
  std::optional<Results> results_;
  BestEpoch best_;
  std::optional<StepLog> log_;  // on rank 0
  std::optional<EventFile> events_;
  static constexpr std::size_t traced_steps = 8;  // most steps in a trace
  std::vector<TimedAction> actions_;
};

int train(const TrainOptions& given, const ModelFactory& factory, Communicator& world) {
  if (!given.slurm.empty()) {
    const bool says_ranks = given.thread_ranks > 0 || world.size() > 1;
    agree_or_throw(world, [&] {
      if (world.rank() == 0) write_batch_script(given, says_ranks ? world.size() : 0);
    });
    return 0;
  }
  TrainOptions options = given;
  std::optional<SignalWatch> saving;  // from the start: a signal that comes early must not end the run
  if (options.verb == "train") saving.emplace(SIGUSR1);
  Setup setup = set_up(options, factory, world);
  return Run(options, std::move(setup), world)();
}

class Train : public ModelCommand<TrainOptions> {
 public:
  using ModelCommand::ModelCommand;
  void add_options(boost::program_options::options_description& all) override { options_.add_to(all, program_); }
  void check(const CommandLine& line) override { options_.check(program_, line); }
  int run(Communicator* world) const override { return train(options_, program_.model, *world); }
};

class Evaluate final : public Train {
 public:
  explicit Evaluate(const Program& program) : Train(program) { options_.verb = "evaluate"; }
};

}  // namespace

extern const VerbEntry train_verb{
    "train", "trains the model on the ranks that mpiexec started, or on --ranks N threads",
    "mpiexec -n 4 {0} train --strategy hybrid.toml", make<Train>, VerbEntry::Ranks::always};
extern const VerbEntry evaluate_verb{"evaluate", "prints the loss and accuracy of a saved model on the test set", "",
                                     make<Evaluate>, VerbEntry::Ranks::always};

}  // namespace partita::cli
