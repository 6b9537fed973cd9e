#include "src/train/checkpoint/run_record.hpp"

#include "partita/base/error.hpp"
#include "src/base/plain_text.hpp"

#include <array>
#include <cmath>
#include <sstream>

#ifndef PARTITA_VERSION
#error "the build defines the version"
#endif

namespace partita {

namespace {

constexpr const char* new_run = "add --new-run to start a new training from its weights";

/// Parses the whole of a text as a number. Throws Error if it is not one.
template <class T>
T parse(const std::string& text) {
  if (const auto value = parse_number<T>(text)) return *value;
  fail("\"{}\" is not a number", text);
}

/// What a resumed training does if an option differs.
enum class Rule : std::uint8_t {
  refuse,  ///< it cannot go on
  follow,  ///< it takes the checkpoint's, unless the option was given
  note,    ///< it goes on, with other rounding
  steps,   ///< see follow_steps()
};

bool has_momentum(const Optimizer& o) {
  return o.method == Method::sgd || o.method == Method::rmsprop || o.method == Method::lars;
}
bool has_mean(const Optimizer& o) {
  return o.method == Method::adam || o.method == Method::adamw || o.method == Method::lamb;
}
bool always(const Optimizer&) { return true; }

/// An option that shapes a training. `get` prints it and `set` reads what `get` printed.
struct Field {
  const char* name;
  Rule rule;
  std::string (*get)(const TrainerOptions&);
  void (*set)(const std::string&, TrainerOptions&);
  bool (*matters)(const Optimizer&) = always;  // with this optimizer
};

constexpr std::string_view decays[]{"none", "linear", "cosine"};

#define PARTITA_FIELD(member, type)                                    \
  [](const TrainerOptions& o) { return fmt::format("{}", o.member); }, \
      [](const std::string& text, TrainerOptions& o) { o.member = parse<type>(text); }
#define PARTITA_FLAG(member)                                                    \
  [](const TrainerOptions& o) { return std::string(o.member ? "yes" : "no"); }, \
      [](const std::string& text, TrainerOptions& o) { o.member = text == "yes"; }
#define PARTITA_TEXT(member) \
  [](const TrainerOptions& o) { return o.member; }, [](const std::string& text, TrainerOptions& o) { o.member = text; }

/// In the order in which differences are told.
const std::vector<Field>& fields() {
  static const std::vector<Field> all{
      {"seed", Rule::refuse, PARTITA_FIELD(seed, std::uint64_t)},
      {"batch", Rule::refuse, PARTITA_FIELD(batch, Index)},
      {"data", Rule::refuse, PARTITA_TEXT(data)},
      {"optimizer", Rule::refuse, [](const TrainerOptions& o) { return std::string(name(o.optimizer.method)); },
       [](const std::string& text, TrainerOptions& o) { o.optimizer.method = parse_method(text); }},
      {"rate", Rule::follow, PARTITA_FIELD(optimizer.rate, double)},
      {"momentum", Rule::follow, PARTITA_FIELD(optimizer.momentum, double), has_momentum},
      {"nesterov", Rule::follow, PARTITA_FLAG(optimizer.nesterov)},
      {"beta1", Rule::follow, PARTITA_FIELD(optimizer.beta1, double), has_mean},
      {"beta2", Rule::follow, PARTITA_FIELD(optimizer.beta2, double),
       [](const Optimizer& o) { return has_mean(o) || o.method == Method::rmsprop; }},
      {"epsilon", Rule::follow, PARTITA_FIELD(optimizer.epsilon, double),
       [](const Optimizer& o) { return o.method != Method::sgd && o.method != Method::lars; }},
      {"trust", Rule::follow, PARTITA_FIELD(optimizer.trust, double),
       [](const Optimizer& o) { return o.method == Method::lars; }},
      {"weight-decay", Rule::follow, PARTITA_FIELD(optimizer.weight_decay, double)},
      {"warm-up", Rule::follow, PARTITA_FIELD(optimizer.warm_up, Index)},
      {"decay", Rule::follow,
       [](const TrainerOptions& o) { return std::string(decays[static_cast<int>(o.optimizer.decay)]); },
       [](const std::string& text, TrainerOptions& o) { o.optimizer.decay = parse_decay(text); }},
      {"decay-floor", Rule::follow, PARTITA_FIELD(optimizer.floor, double)},
      {"clip-norm", Rule::follow, PARTITA_FIELD(optimizer.clip_norm, double)},
      {"epochs", Rule::follow, PARTITA_FIELD(epochs, Index)},
      {"steps", Rule::steps, PARTITA_FIELD(steps, Index)},
      {"shift", Rule::follow, PARTITA_FIELD(augmentation.shift, Index)},
      {"flip", Rule::follow, PARTITA_FLAG(augmentation.flip)},
      {"on-nan", Rule::follow,
       [](const TrainerOptions& o) { return std::string(o.on_nan == OnNan::skip ? "skip" : "stop"); },
       [](const std::string& text, TrainerOptions& o) { o.on_nan = text == "skip" ? OnNan::skip : OnNan::stop; }},
      {"dtype", Rule::note, [](const TrainerOptions& o) { return std::string(name(o.dtype)); },
       [](const std::string& text, TrainerOptions& o) { o.dtype = parse_dtype(text); }},
      {"backend", Rule::note, PARTITA_TEXT(backend)}};
  return all;
}

#undef PARTITA_FIELD
#undef PARTITA_FLAG
#undef PARTITA_TEXT

/// Returns an attribute, or nothing if an older program wrote the checkpoint without it.
const std::string* find(const CheckpointFile& file, const std::string& name) {
  const auto found = file.attributes().find(name);
  return found == file.attributes().end() ? nullptr : &found->second;
}

/// Reads an attribute that every checkpoint of a training has.
template <class T>
T required(const CheckpointFile& file, const std::string& name) {
  const auto* text = find(file, name);
  if (text == nullptr) fail("the checkpoint {} does not say at which {} it was saved", file.path(), name);
  return parse<T>(*text);
}

/// The first lines of two texts that differ; "nothing" for one that has ended.
std::pair<std::string, std::string> first_difference(const std::string& one, const std::string& other) {
  std::istringstream lines(one), others(other);
  const auto next = [](std::istream& from) {
    std::string line;
    return std::getline(from, line) ? fmt::format("\"{}\"", line) : "nothing";
  };
  while (true) {
    std::string a = next(lines), b = next(others);
    if (a != b || a == "nothing") return {std::move(a), std::move(b)};
  }
}

}  // namespace

RunRecord::RunRecord(const CheckpointFile& file) {
  step = required<Index>(file, "step");
  samples = required<Index>(file, "samples");
  if (const auto* text = find(file, "model")) model = *text;
  if (const auto* text = find(file, "version")) version = *text;
  const auto read = [&](const char* attribute, auto& value) {
    if (const auto* text = find(file, attribute)) value = parse<std::decay_t<decltype(value)>>(*text);
  };
  try {
    read("decay-steps", decay_steps);
    read("loss scale", guard.scale);
    read("good steps", guard.good_steps);
    read("steps not finite", guard.not_finite);
    read("steps beyond f16", guard.beyond_f16);
    for (const auto& field : fields())
      if (const auto* text = find(file, field.name)) field.set(*text, options);
    options.optimizer.check();
    const bool good_guard = guard.good_steps >= 0 && guard.not_finite >= 0 && guard.beyond_f16 >= 0 &&
                            guard.not_finite <= step && guard.beyond_f16 <= step - guard.not_finite &&
                            std::isfinite(guard.scale);
    if (step < 0 || samples < 0 || decay_steps < 0 || !good_guard || options.epochs < 1 || options.steps < 0 ||
        options.batch < 1 || options.augmentation.shift < 0)
      fail("its record of the training is damaged (step {}, {} samples)", step, samples);
  } catch (const Error& error) {
    fail("the checkpoint {}: {}", file.path(), error.what());
  }
}

std::map<std::string, std::string> RunRecord::attributes() const {
  std::map<std::string, std::string> all{{"model", model},
                                         {"version", PARTITA_VERSION},
                                         {"step", std::to_string(step)},
                                         {"samples", std::to_string(samples)},
                                         {"decay-steps", std::to_string(decay_steps)},
                                         {"loss scale", fmt::format("{}", guard.scale)},
                                         {"good steps", std::to_string(guard.good_steps)},
                                         {"steps not finite", std::to_string(guard.not_finite)},
                                         {"steps beyond f16", std::to_string(guard.beyond_f16)}};
  for (const auto& field : fields()) all[field.name] = field.get(options);
  return all;
}

std::string RunRecord::print() const {
  return fmt::format("of the model '{}' with seed {} after {}", model.substr(0, model.find('\n')), options.seed,
                     counted(step, "step"));
}

namespace {

/// A run that ended at --steps goes on after it; one that was interrupted before still ends there, unless the command
/// line gives more epochs.
void follow_steps(const RunRecord& record, const std::set<std::string>& given, TrainerOptions& options,
                  std::vector<std::string>& notes) {
  const Index there = record.options.steps;
  if (there == 0 || there == options.steps || given.contains("steps")) return;
  const bool done = record.step >= there;
  if (!done && !given.contains("epochs")) options.steps = there;
  notes.push_back(fmt::format("--steps: the checkpoint has {}; {}", there,
                              done                       ? "they are done, and training goes on"
                              : given.contains("epochs") ? "training goes on to the end of --epochs"
                                                         : "training ends there, as without interruption"));
}

}  // namespace

std::vector<std::string> follow(const RunRecord& record, const std::set<std::string>& given, TrainerOptions& options) {
  std::vector<std::string> notes;
  if (record.version.empty()) {
    notes.emplace_back(
        "an older program wrote the checkpoint, which does not say how its learning rate ran; this command line says "
        "it");
    return notes;
  }
  if (record.version != PARTITA_VERSION)
    notes.push_back(fmt::format("version: {} wrote the checkpoint, this is {}; results may differ by rounding",
                                record.version, PARTITA_VERSION));
  follow_steps(record, given, options, notes);
  for (const auto& field : fields()) {
    const std::string there = field.get(record.options), here = field.get(options);
    if (there == here || field.rule == Rule::refuse || field.rule == Rule::steps) continue;
    std::string done = "results differ by rounding";
    if (field.rule == Rule::follow && !given.contains(field.name)) {
      field.set(there, options);
      done = fmt::format("training goes on with {}, as without interruption", there);
    } else if (field.rule == Rule::follow) {
      done = fmt::format("training goes on with {}, because this command line says so", here);
    }
    if (field.matters(options.optimizer))
      notes.push_back(
          fmt::format("--{}: the checkpoint has {}, this command line {}; {}", field.name, there, here, done));
  }
  if (options.optimizer.decay != Decay::none && options.decay_steps > 0 && options.decay_steps != record.decay_steps)
    notes.push_back(
        fmt::format("--decay-steps: the checkpoint has {}, this command line {}; training goes on with {}, because "
                    "this command line says so",
                    record.decay_steps, options.decay_steps, options.decay_steps));
  return notes;
}

void check_same_model(const RunRecord& record, const std::string& path, const std::string& model, bool resume) {
  if (record.model == model) return;
  const auto [there, here] = first_difference(record.model, model);
  fail("the checkpoint {} has another model: {}, here it is {}{}{}", path, there, here, resume ? "; " : "",
       resume ? new_run : "");
}

void check_resumable(const RunRecord& record, const std::string& path, const TrainerOptions& options) {
  for (const auto& field : fields()) {
    const std::string there = field.get(record.options), here = field.get(options);
    const bool unknown =
        record.version.empty() && field.name != std::string_view("seed") && field.name != std::string_view("batch");
    if (field.rule != Rule::refuse || there == here || unknown) continue;
    if (field.name == std::string_view("data") && (there.empty() || here.empty())) continue;  // a program's own data
    fail("the checkpoint {} has another {}: \"{}\", here it is \"{}\"; give --{} {} to go on with that training, or {}",
         path, field.name, there, here, field.name, there, new_run);
  }
  if (!record.version.empty() && record.options.optimizer.states() != options.optimizer.states())
    fail(
        "the checkpoint {} was saved with momentum {:g}, here it is {:g}; without momentum a run keeps no velocity to "
        "go on with; give --momentum {:g} to go on with that training, or {}",
        path, record.options.optimizer.momentum, options.optimizer.momentum, record.options.optimizer.momentum,
        new_run);
}

}  // namespace partita
