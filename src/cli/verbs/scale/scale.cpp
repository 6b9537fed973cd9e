#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "partita/strategies/cost/estimate.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "src/base/launched_rank.hpp"
#include "src/cli/files/child_process.hpp"
#include "src/cli/files/json.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/cli/inputs/machine_files.hpp"
#include "src/cli/inputs/model_and_strategy.hpp"
#include "src/cli/inputs/open_data.hpp"
#include "src/cli/inputs/settle_strategy.hpp"
#include "src/cli/options/command.hpp"
#include "src/cli/verbs/scale/scale_options.hpp"
#include "src/cli/verbs/scale/scale_results.hpp"
#include "src/cli/verbs/scale/slurm_jobs.hpp"
#include "src/system/clock.hpp"
#include "src/system/open_locked.hpp"
#include "src/system/real_path.hpp"

#include <unistd.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <set>

namespace partita::cli {

namespace {

/// A folder for the files that the runs write. With --out, it lies beside the results, since rank 0 may run on another
/// host. The destructor removes it.
class RunFolder {
 public:
  explicit RunFolder(const std::string& out) {
    if (out.empty()) {
      std::error_code error;
      const auto folder = std::filesystem::temp_directory_path(error);
      if (error) fail("there is no folder for temporary files: {}; set TMPDIR to one, or use --out", error.message());
      path_ = (folder / "partita-scale-XXXXXX").string();
      if (mkdtemp(path_.data()) == nullptr) fail("the folder {} cannot be created", path_);
      return;
    }
    path_ = real_path(out) + ".runs";
    while (!take(out)) continue;
  }
  ~RunFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
    if (mark_ >= 0) close(mark_);
  }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  /// Creates the folder, or takes over the folder of an experiment that was cut off. Returns false if another
  /// experiment has just removed it; the caller then tries again.
  bool take(const std::string& out) {
    const std::string mark = path_ + "/of-partita-scale";  // shows that the folder may be removed with all its files
    std::error_code error;
    if (!std::filesystem::create_directory(path_, error) && !error && access(mark.c_str(), F_OK) != 0 &&
        !std::filesystem::is_empty(path_, error))
      fail(
          "--out {}: the runs need the folder {}, but it exists and does not come from an earlier scale; remove it or "
          "name another file",
          out, path_);
    if (!error) mark_ = open_locked(mark);
    if (!error && mark_ < 0 && errno == ENOENT) return false;
    if (!error && mark_ < 0 && errno == EWOULDBLOCK)
      fail("--out {}: another scale is writing this file now; wait for its end, or name another file", out);
    if (error || mark_ < 0) fail("--out {}: the folder {} cannot be created or written", out, path_);
    return true;
  }

  std::string path_;
  int mark_ = -1;  // descriptor of the mark, which this process has locked
};

std::string print_time(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  return seconds < 5400 ? fmt::format("{:.0f} min", seconds / 60) : fmt::format("{:.1f} h", seconds / 3600);
}

/// Does the runs of an experiment one after the other.
class Experiment {
 public:
  Experiment(const ScaleOptions& options, const ModelFactory& factory, std::vector<RankCase> cases)
      : options_(options),
        model_(make_model(options.train, factory)),
        cases_(std::move(cases)),
        program_(std::filesystem::read_symlink("/proc/self/exe").string()) {
    if (!options_.by_slurm()) folder_.emplace(options_.out);
    check_machine();
    describe();
    check_data();
    if (!options_.by_slurm() && !options_.out.empty() && std::filesystem::exists(options_.out)) resume();
    results_.repeats = options_.repeats;
  }

  int operator()() {
    if (options_.slurm) return submit();
    if (options_.collect) return collect();
    plan_rounds();
    for (int round = 0; round < options_.repeats; ++round)
      for (std::size_t i = 0; i < cases_.size(); ++i) {
        ScaleRun& run = results_.run(wanted_[i]);
        if (failed_.count(i) == 0 && static_cast<int>(run.repeats.size()) <= round) measure(i, run);
      }
    print_results();
    return failed_.empty() ? 0 : 1;
  }

 private:
  void print_results() const {
    write(true);
    fmt::print("{} scaling of {}, {}, {} per rank, {}\n", results_.weak ? "weak" : "strong", results_.model,
               results_.dtype, counted(results_.threads, "thread"), results_.conditions.processor);
    fmt::print("{}", results_.table());
  }

  Index batch(int ranks) const { return options_.weak ? options_.batch * ranks : options_.batch; }
  Index all_steps() const { return options_.steps + uncounted_steps; }

  TrainOptions options_for(int ranks) const {
    TrainOptions options = options_.train;
    options.trainer.batch = batch(ranks);
    if (options.trainer.data == "synthetic" &&
        options.samples == 0)  // full batches; a run of more steps takes several epochs
      options.samples = options.trainer.batch * std::clamp<Index>(most_samples / options.trainer.batch, 1, all_steps());
    return options;
  }

  /// Throws Error before the first run if the machine file cannot be read.
  void check_machine() const {
    const auto note = load_machine(options_.train).note;
    if (!note.empty()) fmt::print(stderr, "note: {}\n", note);
  }

  /// Fills the results with what is known before the first run.
  void describe() {
    results_ = {.model = model_.name(),
                .weak = options_.weak,
                .batch = options_.batch,
                .steps = options_.steps,
                .dtype = std::string(name(options_.train.trainer.dtype)),
                .arguments = in_json(fmt::format("{}", fmt::join(options_.arguments, " "))),
                .launcher = in_json(fmt::format("{}", fmt::join(options_.launcher, " "))),
                .conditions = present_conditions(),
                .threads = options_.train.trainer.threads,
                .repeats = options_.repeats,
                .runs = {}};
    for (const auto& each : cases_) results_.run(wanted_.emplace_back(wanted(each)));
    if (measured_layers_ < layers_)
      fmt::print(stderr,
                 "note: the predictions take {} of {} layers' times from measurements ({}), the others from the "
                 "machine's rates; calibrate measures the layers of a model\n",
                 measured_layers_, layers_, times_path(options_.train.machine));
  }

  ScaleRun wanted(const RankCase& each) {
    const TrainOptions options = options_for(each.ranks);
    ScaleRun run{.strategy = in_json(each.name),  // as in the file --out
                 .fingerprint = fmt::format("{:016x}", hash_text(each.strategy.print())),
                 .ranks = each.ranks,
                 .batch = options.trainer.batch,
                 .repeats = {},
                 .predicted = std::nullopt,
                 .message = ""};
    try {
      if (!options.machine.empty()) run.predicted = predict(each.strategy, options);
    } catch (const Error&) {  // the strategy cannot be bound; its run will report why
    }
    return run;
  }

  /// Returns the predicted seconds of a training step on the machine of --machine.
  double predict(const Strategy& strategy, const TrainOptions& options) {
    const MachineFiles files = load_machine(options);
    const Plan plan = bind(model_, settle_strategy(options, model_, strategy, files).strategy, make_workload(options));
    const Cost cost = estimate(plan, files.machine, files.times);
    layers_ += static_cast<int>(cost.layers.size());
    for (const LayerCost& layer : cost.layers) measured_layers_ += layer.measured ? 1 : 0;
    return cost.seconds;
  }

  /// Throws Error before the first run if the data set is missing, does not match the model or has too few samples.
  void check_data() {
    const int most = most_ranks();
    if (batch(most) > most_samples)
      fail("--batch {}: with {} a step takes {}, but the most is {}; give a smaller batch", options_.batch,
           counted(most, "rank"), counted(batch(most), "sample"), most_samples);
    size_ = open_data(options_for(most), model_, true)->size();
    for (const auto& each : cases_)
      if (batch(each.ranks) > samples(each.ranks))
        fail("--batch {}: with {} a step takes {}, but the training set has {}", options_.batch,
             counted(each.ranks, "rank"), counted(batch(each.ranks), "sample"), samples(each.ranks));
  }

  int most_ranks() const {
    int most = 0;
    for (const auto& each : cases_) most = std::max(most, each.ranks);
    return most;
  }

  Index samples(int ranks) const {
    const TrainOptions options = options_for(ranks);
    return options.samples > 0 ? options.samples : size_;
  }

  /// Continues the experiment in the file --out, which was cut off or gets more runs.
  void resume() {
    ScaleResults before = ScaleResults::load("--out", options_.out);
    if (const auto difference = before.difference(results_); !difference.empty())
      fail("--out {}: it has the results of another experiment: {}; remove it or name another file", options_.out,
           difference);
    for (const auto& run : wanted_) before.run(run).predicted = run.predicted;
    results_ = std::move(before);
  }

  void plan_rounds() {
    for (const auto& run : wanted_) {
      const auto done = static_cast<int>(results_.run(run).repeats.size());
      all_ += std::max(options_.repeats - done, 0);
      there_ += std::min(options_.repeats, done);
    }
    if (there_ > 0) fmt::print(stderr, "{} of {} runs are already in {}\n", there_, there_ + all_, options_.out);
    if (options_.launcher.size() == 1 && most_ranks() > results_.conditions.cores)
      fmt::print(stderr, "note: {} share {}\n", counted(most_ranks(), "rank"),
                 counted(results_.conditions.cores, "core"));
    started_ = now();
  }

  /// What starts one run of a case, without `--json FILE`.
  std::vector<std::string> command(const RankCase& each) const {
    const Index size = samples(each.ranks), epoch = (size + batch(each.ranks) - 1) / batch(each.ranks);
    std::vector<std::string> words = options_.launcher;
    words.insert(words.end(), {"-n", std::to_string(each.ranks), program_, "train"});
    for (const auto* more : {&options_.arguments, &each.arguments})
      words.insert(words.end(), more->begin(), more->end());
    words.insert(words.end(), {"--batch", std::to_string(batch(each.ranks)), "--steps", std::to_string(all_steps()),
                               "--epochs", std::to_string((all_steps() + epoch - 1) / epoch), "--no-test"});
    if (options_.train.trainer.data == "synthetic" && options_.train.samples == 0)
      words.insert(words.end(), {"--samples", std::to_string(size)});
    return words;
  }

  /// The median time of the steps that count. The first steps and an epoch's smaller last batch do not count.
  double seconds_a_step(const RankCase& each, const std::string& path) const {
    const auto json = Json::parse(read_text("--json", path));
    const std::vector<double> steps = json.at("step_seconds");
    const Index size = samples(each.ranks), whole = size / batch(each.ranks);
    const Index epoch = (size + batch(each.ranks) - 1) / batch(each.ranks);
    std::vector<double> counted;
    for (Index i = uncounted_steps; i < static_cast<Index>(steps.size()); ++i)
      if (i % epoch < whole) counted.push_back(steps[i]);
    if (counted.empty()) throw Error("no step with a full batch was timed");
    return median(std::move(counted));
  }

  /// One more run of case `i`.
  void measure(std::size_t i, ScaleRun& run) {
    const std::string json = folder_->path() + "/run.json";
    std::filesystem::remove(json);
    const auto note = [](const std::string& message) {
      fmt::print(stderr, "note: no rank has started yet; the launcher printed\n{}\n", message);
    };
    std::vector<std::string> words = command(cases_[i]);
    words.insert(words.end(), {"--json", json});
    const ChildEnd end = run_child(words, folder_->path(), {static_cast<double>(options_.train.timeout), note});
    run.status = end.status;
    run.message = end.status == 0 ? "" : end.message;
    if (end.status == 0) read(cases_[i], json, run);
    ++done_;
    if (run.status != 0) {  // leave out its other repeats, which would fail too
      failed_.insert(i);
      all_ -= std::max(options_.repeats - static_cast<int>(run.repeats.size()) - 1, 0);
    }
    write(false);
    report(run);
  }

  void read(const RankCase& each, const std::string& json, ScaleRun& run) const {
    try {
      run.repeats.push_back(seconds_a_step(each, json));
    } catch (const std::exception& error) {  // also catches errors of the JSON parser
      run.status = 1;
      run.message = fmt::format("its results cannot be used: {}", error.what());
    }
  }

  SlurmJobs slurm_jobs() const {
    std::vector<SlurmPoint> points;
    for (std::size_t i = 0; i < cases_.size(); ++i)
      points.push_back({cases_[i].name, cases_[i].ranks, {static_cast<int>(i), command(cases_[i])}});
    return SlurmJobs(options_, std::move(points));
  }

  int submit() {
    SlurmJobs jobs = slurm_jobs();
    const auto wanted = jobs.unfinished();
    if (options_.dry_run) {
      fmt::print("{}", jobs.print(wanted));
      return 0;
    }
    jobs.keep_experiment(results_);
    jobs.submit(wanted);
    return 0;
  }

  /// Gathers the results of the jobs so far. Results that are missing are named.
  int collect() {
    const SlurmJobs jobs = slurm_jobs();
    jobs.check_experiment(results_);
    std::string missing;
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      ScaleRun& run = results_.run(wanted_[i]);
      for (int repeat = 1; repeat <= options_.repeats; ++repeat)
        if (const std::string json = jobs.result(i, repeat); std::filesystem::exists(json)) {
          read(cases_[i], json, run);
          results_.conditions = conditions_of(json);
        }
      if (const auto status = jobs.failure(i)) {
        run.status = status->status;
        run.message = status->message;
        failed_.insert(i);
      } else if (std::ssize(run.repeats) < options_.repeats)
        missing +=
            fmt::format("missing: {} on {}: {} of {}, {}\n", run.strategy, counted(run.ranks, "rank"),
                        options_.repeats - std::ssize(run.repeats), counted(options_.repeats, "run"), jobs.state(i));
    }
    std::erase_if(results_.runs, [](const ScaleRun& run) { return run.repeats.empty() && run.status == 0; });
    print_results();
    fmt::print("{}", missing);
    if (!missing.empty() || !failed_.empty())
      fmt::print("scale --slurm --resubmit, with the same options, runs what has failed or is missing\n");
    return missing.empty() && failed_.empty() ? 0 : 1;
  }

  /// The machine on which a run took place.
  static Conditions conditions_of(const std::string& path) {
    const Json json = Json::parse(read_text("--out", path)).at("conditions");
    return {json.at("processor"), json.at("cores"), json.at("mpi"), json.at("date")};
  }

  void report(const ScaleRun& run) const {
    const std::string what = run.status == 0 ? fmt::format("{:.2f} ms a step", 1e3 * run.repeats.back())
                                             : fmt::format("failed with status {}", run.status);
    const double left = (now() - started_) / done_ * (all_ - done_);
    fmt::print(stderr, "run {}/{}  {}, {}, batch {}: {}{}\n", there_ + done_, there_ + all_, run.strategy,
               counted(run.ranks, "rank"), run.batch, what,
               all_ > done_ ? "; about " + print_time(left) + " left" : "");
    if (run.status != 0) fmt::print(stderr, "{}\n", run.message);
  }

  void write(bool last) const {
    if (!options_.out.empty()) write_text("--out", options_.out, results_.json());
    if (!options_.csv.empty() && (last || !is_stream(options_.csv)))  // a stream gets the results only once
      write_text("--csv", options_.csv, results_.csv());
  }

  const ScaleOptions& options_;
  Model model_;
  std::vector<RankCase> cases_;
  std::vector<ScaleRun> wanted_;          // the run of each case before anything is measured
  int measured_layers_ = 0, layers_ = 0;  // of all predictions: layers with measured kernel times, and all
  std::string program_;
  std::optional<RunFolder> folder_;  // of the runs that this process does
  ScaleResults results_;
  Index size_ = 0;                      // samples of the training set; used if it is not synthetic
  std::set<std::size_t> failed_;        // cases that failed in this experiment
  int all_ = 0, done_ = 0, there_ = 0;  // number of runs: to do, done of these, found in the file
  double started_ = 0;
};

class Scale final : public Command {
 public:
  explicit Scale(const Program& program) : program_(program) {}
  void add_options(boost::program_options::options_description& all) override { options_.add_to(all); }
  void check(const CommandLine& line) override {
    if (launched_rank() != nullptr) fail("scale starts mpiexec itself; start it without mpiexec");
    options_.check(program_, line);
  }
  int run(Communicator*) const override {
    std::vector<std::string> notes;
    auto cases = scale_cases(options_, notes);
    for (const auto& note : notes) fmt::print(stderr, "note: {}\n", note);
    // Otherwise libraries with threads of their own would use the cores of other ranks.
    setenv("OMP_NUM_THREADS", std::to_string(options_.train.trainer.threads).c_str(), 0);
    return Experiment(options_, program_.model, std::move(cases))();
  }

 private:
  const Program& program_;
  ScaleOptions options_;
};

}  // namespace

extern const VerbEntry scale_verb{"scale",
                                  "measures strong or weak scaling; it starts every run itself",
                                  "{0} scale --ranks 1 2 4 --out results.json",
                                  make<Scale>,
                                  VerbEntry::Ranks::none,
                                  "--ranks P... [options] [options of train]",
                                  nullptr,
                                  "train"};

}  // namespace partita::cli
