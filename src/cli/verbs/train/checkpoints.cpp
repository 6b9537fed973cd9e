#include "src/cli/verbs/train/checkpoints.hpp"

#include "partita/base/error.hpp"
#include "src/cli/options/option_values.hpp"
#include "src/cli/output/batch_script.hpp"
#include "src/system/open_locked.hpp"
#include "src/system/real_path.hpp"
#include "src/train/checkpoint/run_record.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <tuple>

namespace partita::cli {

namespace {

constexpr std::string_view written_meanwhile = "another run has written it meanwhile";

/// Returns the checkpoint at `path` that `option` would replace; nothing if there is no file or an empty one. Throws
/// Error for a file that is not a checkpoint.
std::optional<CheckpointFile> existing(const char* option, const std::string& path) {
  struct stat there {};
  if (stat(path.c_str(), &there) != 0 || there.st_size == 0) return std::nullopt;
  try {
    return CheckpointFile(path);
  } catch (const Error& error) {
    fail(
        "{} {}: the file there is not a checkpoint of Partita, so it is not replaced; save to another name, or "
        "remove it ({})",
        option, path, error.what());
  }
}

std::string describe(const CheckpointFile& file) {
  try {
    return RunRecord(file).print();
  } catch (const Error&) {
    return "without a training";  // save_checkpoint() of a program wrote it
  }
}

/// Throws Error if `option` names a file that this run may not replace; `own` says whether it continues the run that
/// wrote the checkpoint there. Returns the checkpoint's identity.
std::optional<std::uint64_t> check_replaceable(const char* option, const std::string& path, bool own, bool overwrite) {
  if (path.empty()) return std::nullopt;
  const auto there = existing(option, path);
  if (there && !overwrite && !own)
    fail(
        "{} {}: it belongs to another run, {}; continue that run with --load {}, save to another name, or give "
        "--overwrite",
        option, path, describe(*there), path);
  naming_option(option, path, [&] { check_saving(path); });
  if (!there) return std::nullopt;
  return there->identity();
}

/// Throws Error if an option names a checkpoint, and this build has no HDF5.
void check_hdf5(const TrainOptions& options) {
  if (!hdf5_version().empty()) return;
  for (const auto& [option, path] :
       {std::pair("--load", options.load), std::pair("--save", options.save), std::pair("--best", options.watch.best)})
    if (!path.empty())
      fail(
          "{} {}: this build has no HDF5, and checkpoints are HDF5 files; install HDF5 (libhdf5-dev) and configure "
          "again with -Dhdf5=enabled, or leave the option out",
          option, path);
}

}  // namespace

std::vector<std::string> words_without(const std::vector<std::string>& words,
                                       std::span<const std::pair<std::string_view, bool>> options) {
  std::vector<std::string> left;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto found = std::find_if(options.begin(), options.end(), [&](const auto& option) {
      const auto& [name, has_value] = option;
      return words[i] == name || (has_value && words[i].starts_with(std::string(name) + "="));
    });
    if (found == options.end())
      left.push_back(words[i]);
    else if (found->second && words[i] == found->first)
      ++i;
  }
  return left;
}

std::vector<std::string> resuming_words(const std::vector<std::string>& words, const std::string& save) {
  static constexpr std::array<std::pair<std::string_view, bool>, 4> options{
      {{"--load", true}, {"--skip", true}, {"--new-run", false}, {"--overwrite", false}}};
  std::vector<std::string> left = words_without(words, options);
  left.insert(left.end(), {"--load", save});
  return left;
}

bool same_run(const std::string& one, const std::string& other) {
  const auto identity = [](const std::string& path) {
    const RunRecord record{CheckpointFile(path)};
    const TrainerOptions& o = record.options;
    return std::tuple(record.model, o.seed, o.data, record.samples, o.batch, o.optimizer.method);
  };
  try {
    return identity(one) == identity(other);
  } catch (const Error&) {
    return false;  // there is no such file, or a program saved weights without a training
  }
}

std::optional<CheckpointFile> open_checkpoint(TrainOptions& options, std::vector<std::string>& notes) {
  check_hdf5(options);
  if (options.load.empty()) {
    if (options.new_run) fail("--new-run starts from the weights of a checkpoint; give one with --load FILE");
    if (!options.skip.empty()) fail("--skip {}: it needs --load FILE --new-run", options.skip.front());
    return std::nullopt;
  }
  if (!options.skip.empty() && !options.new_run)
    fail("--skip {}: only a new training can leave out layers of a checkpoint; add --new-run", options.skip.front());
  CheckpointFile file(options.load);
  if (options.verb == "train" && !options.new_run) {
    const RunRecord record(file);
    notes = follow(record, options.given, options.trainer);
    check_resumable(record, file.path(), options.trainer);
  }
  return file;
}

std::optional<std::uint64_t> check_replaceable(const TrainOptions& options) {
  const bool continues = !options.load.empty() && !options.new_run;
  check_replaceable("--best", options.watch.best, continues && same_run(options.load, options.watch.best),
                    options.overwrite);
  const bool loaded = continues && real_path(options.load) == real_path(options.save);
  return check_replaceable("--save", options.save, loaded, options.overwrite);
}

Checkpoints::Checkpoints(const TrainOptions& options, std::optional<std::uint64_t> replaceable, Communicator& world)
    : options_(options), world_(world), first_(world.rank() == 0), own_(replaceable) {
  if (first_ && options.seconds > 0) limit_.emplace(options.seconds);
}

void Checkpoints::load(Trainer& trainer, const CheckpointFile& file, const std::vector<std::string>& notes) {
  if (!options_.new_run) {
    trainer.load(file, options_.verb == "train");
    if (!options_.save.empty() && real_path(options_.load) == real_path(options_.save)) there_ = trainer.steps_done();
    if (first_)
      for (const auto& note : notes) fmt::print("note       {}\n", note);
    return;
  }
  const LoadedWeights weights = trainer.load_weights(file, options_.skip);
  if (!first_) return;
  if (!weights.left.empty()) fmt::print("note       not loaded, with new values: {}\n", quoted_list(weights.left));
  if (!weights.unused.empty())
    fmt::print("note       in {}, but not used: {}\n", options_.load, quoted_list(weights.unused));
}

void Checkpoints::after_training() {
  stopping_.reset();
  double stop = SignalWatch::take().stop ? 1 : 0;  // a signal after the last step
  world_.all_reduce(&stop, 1, DType::f64, ReduceOp::max, {}).wait();
  stopped_ = stopped_ || stop > 0;
}

Requests Checkpoints::requests() {
  Requests asked = SignalWatch::take();
  if (limit_ && !stopped_ && limit_->ends_after_step(TimeLimit::Clock::now())) asked.stop = limit_stopped_ = true;
  return asked;
}

bool Checkpoints::is_due(Trainer& trainer, bool ends_epoch) {
  const Requests asked = trainer.take_requests();
  if (asked.stop) {
    stopped_ = true;
    trainer.stop();
  }
  asked_ = asked.save;
  if (first_ && asked_ && options_.save.empty())
    fmt::print("note       SIGUSR1 asks for a checkpoint, but there is no --save FILE\n");
  if (options_.save.empty() || ends_epoch || asked.stop) return false;
  return asked_ || (options_.save_every > 0 && trainer.steps_done() % options_.save_every == 0);
}

/// Throws Error if another run has written the file since this run did. Called on rank 0.
void Checkpoints::check_owner() const {
  const auto there = existing("--save", options_.save);
  if (there && there->identity() != own_)
    fail("--save {}: {}, {}; it stays as it is, and this run ends; give each run a name of its own", options_.save,
         written_meanwhile, describe(*there));
}

void Checkpoints::keep(Index step) {
  if (!kept_) kept_.emplace(options_.save, options_.keep, there_);
  if (there_ < 0 || there_ == step) return;
  if (const std::string problem = kept_->keep(there_); !problem.empty())
    fmt::print("note       --keep {}: the checkpoint of step {} is replaced, since {}\n", options_.keep, there_,
               problem);
}

void Checkpoints::save(Trainer& trainer) {
  if (options_.save.empty()) return;
  std::string problem;
  try {
    if (first_) check_owner();
    if (first_ && options_.keep > 1) keep(trainer.steps_done());
  } catch (const Error& error) {
    problem = error.what();
  }
  problem = agree(world_, problem);
  if (!problem.empty()) throw RunFailed(problem);
  const auto begin = TimeLimit::Clock::now();
  try {
    own_ = trainer.save(options_.save, [this] { check_owner(); });  // now no other run can write it
  } catch (const AgreedError& error) {
    const std::string what = error.what(), option = fmt::format("--save {}: ", options_.save);
    for (const auto lost : {written_meanwhile, being_written})
      if (what.find(lost) != std::string::npos) throw RunFailed(what.starts_with(option) ? what : option + what);
    throw AgreedError(what + kept());
  }
  if (limit_) limit_->save_took(TimeLimit::Clock::now() - begin);
  there_ = saved_step_ = trainer.steps_done();
  if (kept_) kept_->drop_oldest();
  if (first_ && std::exchange(asked_, false))
    fmt::print("note       saved {} after {} (SIGUSR1)\n", options_.save, counted(saved_step_, "step"));
}

std::string Checkpoints::resuming_command() const {
  std::string text =
      world_.size() > 1 && options_.thread_ranks == 0 ? fmt::format("mpiexec -n {} ", world_.size()) : "";
  return text + shell_words(resuming_words(options_.words, options_.save));
}

void Checkpoints::finish(const Trainer& trainer) const {
  if (!stopped_) return;
  if (options_.save.empty())
    throw RunFailed(fmt::format("SIGTERM ended the run after {}; nothing was saved, because there was no --save FILE",
                                counted(trainer.steps_done(), "step")));
  if (!first_) return;
  fmt::print("stopped    by {} after {}; {}; resume with\n           {}\n",
             limit_stopped_ ? "--time-limit " + options_.time_limit : "SIGTERM", counted(trainer.steps_done(), "step"),
             saved_step_ >= 0 ? options_.save + " was saved" : "nothing was left to save", resuming_command());
  std::fflush(stdout);
}

std::string Checkpoints::kept() const {
  if (options_.save.empty()) return "; no checkpoint was written, because there was no --save FILE";
  if (saved_step_ >= 0) return fmt::format("; {} stays as it was after step {}", options_.save, saved_step_);
  return fmt::format("; this run has not saved to {} yet", options_.save);
}

}  // namespace partita::cli
