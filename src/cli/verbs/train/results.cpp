#include "src/cli/verbs/train/results.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/cli/output/conditions.hpp"
#include "src/cli/verbs/train/delays.hpp"
#include "src/cli/version.hpp"
#include "src/train/kernels/kernel_choice.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <system_error>

namespace partita::cli {

namespace {

/// In checkpoints: the loss of the last step, in JSON. It tells whether a file of results belongs to the training.
constexpr const char* loss_note = "loss";

struct Totals {
  Traffic predicted, measured;                      ///< sums over all ranks
  Index predicted_memory = 0, measured_memory = 0;  ///< peak bytes, maximum over all ranks
};

/// Collective: every rank of `world` calls it.
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

const char* name(Decay decay) {
  switch (decay) {
    case Decay::none: return "none";
    case Decay::linear: return "linear";
    case Decay::cosine: return "cosine";
  }
  return "";
}

Json to_json(const Optimizer& o) {
  return {{"method", partita::name(o.method)}, {"rate", o.rate},   {"warm_up", o.warm_up}, {"decay", name(o.decay)},
          {"weight_decay", o.weight_decay},    {"text", o.print()}};
}

double rate_of(const EpochReport& report) {
  return report.seconds > 0 ? static_cast<double>(report.samples) / report.seconds : 0.0;
}

}  // namespace

Results::Results(const TrainOptions& options, const Model& model, Trainer& trainer, Communicator& world)
    : options_(options), trainer_(trainer), world_(world), first_(world.rank() == 0) {
  const Plan& plan = trainer.plan();
  const Target target = plan.layers.back().op->target(plan.layers.back()->input_shapes[0]);
  tokens_ = plan.layers.front().op->integers() && target.shape.has('L');
  segments_ = target.labels && target.shape.dims() > 1 && !tokens_;
  head_ = {{"subject", options.verb},
           {"version", version},
           {"model", model.name()},
           {"strategy", options.strategy},
           {"grid", plan.grid().print()}};
  if (plan.grids.size() > 1) head_["stages"] = plan.grids.size();
  head_["schedule"] = plan.schedule.kind;
  head_["microbatches"] = plan.microbatches;
  head_["ranks"] = world.size();
  head_["batch"] = options.trainer.batch;
  head_["dtype"] = partita::name(options.trainer.dtype);
  head_["seed"] = options.trainer.seed;
  head_["backend"] = trainer.backend();
  if (plan.workload.training) head_["optimizer"] = to_json(options.trainer.optimizer);
  const Conditions conditions = present_conditions();
  head_["conditions"] = {{"processor", conditions.processor},
                         {"cores", conditions.cores},
                         {"threads", options.trainer.threads},
                         {"mpi", options.thread_ranks > 0 ? "none, ranks are threads" : conditions.mpi},
                         {"backend", options.trainer.backend},
                         {"date", conditions.date}};
  if (!plan.workload.training) return;
  head_["first_step"] = trainer.steps_done() + 1;
  if (first_ && trainer.steps_done() > 0 && !options.json.empty() && !is_stream(options.json))
    take_over(trainer.steps_done());
}

namespace {

/// The parts of the JSON file with one entry for each step, and those with one for each pass.
constexpr std::array by_step{"losses", "accuracies", "rates", "step_seconds"};
constexpr std::array by_pass{"epochs", "validation"};

/// Returns the parts of an earlier file that belong to the first `steps_done` steps of a training, whose last loss was
/// `last`. Throws Error or Json::exception if the file does not hold them.
Json parts_up_to(Index steps_done, const std::string& last, const Json& file) {
  const auto first = file.at("first_step").get<Index>();
  const Index steps = steps_done - first + 1;
  Json parts{{"first_step", first}};
  for (const char* key : by_step) {
    const Json& all = file.at(key);
    if (first < 1 || steps < 1 || static_cast<Index>(all.size()) < steps) fail("it lacks some of these steps");
    parts[key] = Json(all.begin(), all.begin() + steps);
  }
  if (parts["losses"].back().dump() != last) fail("its loss after these steps is another");
  for (const char* key : by_pass)
    for (const Json& pass : file.value(key, Json::array()))
      if (pass.at("step").get<Index>() <= steps_done) parts[key].push_back(pass);
  return parts;
}

}  // namespace

/// Keeps what the JSON file holds of the steps before this run.
void Results::take_over(Index steps_done) {
  std::error_code error;
  if (!std::filesystem::exists(options_.json, error)) return;
  try {
    const std::string text = read_text("--json", options_.json);
    if (is_too_deep(text)) fail("it is nested too deeply");
    const auto last = trainer_.notes().find(loss_note);
    if (last == trainer_.notes().end()) fail("the checkpoint does not tell the loss of its last step");
    earlier_ = parts_up_to(steps_done, last->second, Json::parse(text));
    head_["first_step"] = earlier_["first_step"];
  } catch (const std::exception&) {
    fmt::print("note       --json {}: it does not hold the {} before this run, so it is replaced\n", options_.json,
               counted(steps_done, "step"));
  }
}

/// Puts the entries of earlier runs before those of this run.
Json Results::with_earlier(const char* key, Json now) const {
  if (!earlier_.contains(key)) return now;
  Json all = earlier_.at(key);
  all.insert(all.end(), now.begin(), now.end());
  return all;
}

void Results::add(const StepRecord& step) {
  losses_.push_back(step.result.loss);
  accuracies_.push_back(step.result.accuracy);
  rates_.push_back(step.learning_rate);
  step_seconds_.push_back(step.seconds);
}

Json Results::pass(const EpochReport& report) const {
  Json json{{"epoch", report.epoch},     {"step", trainer_.steps_trained()},
            {"steps", report.steps},     {"samples", report.samples},
            {"loss", report.loss},       {"accuracy", report.accuracy},
            {"seconds", report.seconds}, {"images_per_second", rate_of(report)}};
  if (report.counts.has_top5()) json["top5"] = report.counts.top5();
  if (segments_ && report.counts.classes() > 0) json["mean_iou"] = report.counts.mean_iou();
  if (tokens_) json["perplexity"] = std::exp(report.loss);
  return json;
}

void Results::print_pass(const char* what, const EpochReport& report) const {
  if (!first_) return;
  std::string text = print_result(report.loss, report.accuracy);
  if (report.skipped == report.steps && std::isnan(report.loss)) text = "no loss: all steps were skipped";
  if (report.counts.has_top5()) text += fmt::format("  top-5 {:.2f}%", 100 * report.counts.top5());
  if (segments_ && report.counts.classes() > 0) text += fmt::format("  mean IoU {:.4f}", report.counts.mean_iou());
  if (tokens_) text += fmt::format("  perplexity {:.2f}", std::exp(report.loss));
  const bool part = report.first > 0 || report.steps < report.all;
  fmt::print(
      "{} {:<3}  {}  {:.1f} s  {:.0f} images/s{}\n", what, report.epoch, text, report.seconds, rate_of(report),
      part ? fmt::format("  (steps {} to {} of {})", report.first + 1, report.first + report.steps, report.all) : "");
  std::fflush(stdout);
}

/// A run that was killed may have done steps of this run's first epoch without an entry for them. Adds the entry, from
/// what that run wrote about each step.
void Results::fill_gap(const EpochReport& report) {
  if (!earlier_.contains("losses") || !epochs_.empty()) return;
  const Json& all = earlier_["losses"];
  const Json known = earlier_.value("epochs", Json::array());
  const Index first = earlier_["first_step"].get<Index>(), done = first - 1 + static_cast<Index>(all.size());
  const Index steps = done - (known.empty() ? first - 1 : known.back()["step"].get<Index>());
  if (steps <= 0) return;
  const auto sum = [&](const char* key) {
    double total = 0;
    for (auto each = earlier_[key].end() - steps; each != earlier_[key].end(); ++each)
      total += each->is_number() ? each->get<double>() : std::nan("");
    return total;
  };
  const Index samples = steps * options_.trainer.batch;  // the last, smaller batch of an epoch comes later
  const double seconds = sum("step_seconds"), count = static_cast<double>(steps);
  earlier_["epochs"].push_back({{"epoch", report.epoch},
                                {"step", done},
                                {"steps", steps},
                                {"samples", samples},
                                {"loss", sum("losses") / count},
                                {"accuracy", sum("accuracies") / count},
                                {"seconds", seconds},
                                {"images_per_second", static_cast<double>(samples) / seconds}});
}

void Results::add_epoch(const EpochReport& report) {
  fill_gap(report);
  epochs_.push_back(pass(report));
  print_pass("epoch", report);
}

void Results::set_best(const BestEpoch& best) {
  if (best.epoch() > 0) best_ = {{"epoch", best.epoch()}, {"loss", best.loss()}, {"file", options_.watch.best}};
}

void Results::add_validation(const EpochReport& report, const BestEpoch& best) {
  validation_.push_back(pass(report));
  set_best(best);
  add_confusion("validation", report);
  print_pass("valid", report);
}

void Results::add_test(const EpochReport& report) {
  test_ = pass(report);
  add_confusion("test", report);
  print_pass("test ", report);
}

/// Keeps the confusion matrix of the latest pass.
void Results::add_confusion(const char* what, const EpochReport& report) {
  if (report.counts.has_matrix()) confusion_ = {{"pass", what}, {"counts", report.counts.matrix()}};
}

/// Returns the results on rank 0. Collective: every rank calls it.
Json Results::document(bool finished) {
  const Totals sums = totals(trainer_, world_);
  if (!first_) return {};
  Json json = head_;
  if (trainer_.plan().workload.training) {
    json["finished"] = finished;
    json["epochs"] = with_earlier("epochs", epochs_);
    if (Json validation = with_earlier("validation", validation_); !validation.empty())
      json["validation"] = std::move(validation);
    if (!best_.is_null()) json["best"] = best_;
    json["losses"] = with_earlier("losses", losses_);
    json["accuracies"] = with_earlier("accuracies", accuracies_);
    json["rates"] = with_earlier("rates", rates_);
    json["step_seconds"] = with_earlier("step_seconds", step_seconds_);
    if (!delays_.empty()) json["delays"] = delays_;
    json["skipped_steps"] = trainer_.skipped_not_finite() + trainer_.skipped_beyond_f16();
    if (options_.trainer.dtype == DType::f16) json["loss_scale"] = trainer_.loss_scale();
  }
  if (!test_.is_null()) json["test"] = test_;
  if (!confusion_.is_null()) json["confusion"] = confusion_;
  json["predicted_messages"] = sums.predicted.messages;
  json["measured_messages"] = sums.measured.messages;
  json["predicted_bytes"] = sums.predicted.bytes;
  json["measured_bytes"] = sums.measured.bytes;
  json["predicted_memory"] = sums.predicted_memory;
  json["measured_memory"] = sums.measured_memory;
  json["kernels"] = trainer_.plan().kernels;
  return json;
}

void Results::write_so_far() {
  if (!losses_.empty()) trainer_.notes()[loss_note] = Json(losses_.back()).dump();
  if (options_.json.empty()) return;
  const Json json = document(false);
  if (!first_ || is_stream(options_.json)) return;
  try {
    write_text("--json", options_.json, print_json(json));
  } catch (const Error& error) {
    if (!noted_) fmt::print(stderr, "note: {}; the training goes on\n", error.what());
    noted_ = true;
  }
}

void Results::print_skipped() const {
  const auto left = [](Index steps) { return fmt::format("{} left the weights as they were", counted(steps, "step")); };
  if (const Index steps = trainer_.skipped_not_finite(); steps > 0)
    fmt::print("note       {}: a number was not finite\n", left(steps));
  if (options_.verb == "train" && options_.trainer.dtype == DType::f16)
    fmt::print("f16        loss scale {:g}; {}: gradients exceeded the range of f16\n", trainer_.loss_scale(),
               left(trainer_.skipped_beyond_f16()));
}

void Results::finish(bool whole) {
  const Json json = document(whole);
  if (first_) {
    fmt::print("moved      {} messages, {} bytes by all ranks (predicted {}, {})\n",
               json["measured_messages"].get<Index>(), json["measured_bytes"].get<Index>(),
               json["predicted_messages"].get<Index>(), json["predicted_bytes"].get<Index>());
    fmt::print("memory     {} at most on a rank (predicted {})\n", print_bytes(json["measured_memory"].get<Index>()),
               print_bytes(json["predicted_memory"].get<Index>()));
  }
  if (first_ && !trainer_.kernel_problem().empty())
    fmt::print("note       kernels were chosen by rule, without measuring: {}\n", trainer_.kernel_problem());
  if (first_ && !delays_.empty())
    fmt::print("delayed    {}\n", print_delays(delays_, static_cast<Index>(losses_.size())));
  if (first_) print_skipped();
  if (options_.json.empty()) return;
  agree_or_throw(world_, [&] {
    try {
      if (first_) write_text("--json", options_.json, print_json(json));
    } catch (const Error&) {
      if (!noted_) throw;
      fail("--json {}: it still cannot be written, so the results of this run are lost; see the note above",
           options_.json);
    }
  });
}

}  // namespace partita::cli
