// What a trainer saves and loads.
#include "partita/base/error.hpp"
#include "partita/comm/counting.hpp"
#include "partita/train/checkpoint/checkpoint.hpp"
#include "partita/train/trainer/trainer.hpp"
#include "src/train/checkpoint/run_record.hpp"
#include "src/train/executor/inspector.hpp"
#include "src/train/executor/parameters.hpp"
#include "src/train/executor/step_guard.hpp"
#include "src/train/trainer/memory_account.hpp"
#include "src/train/trainer/stage_ranks.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <optional>

namespace partita {

namespace {

constexpr const char* checkpoint_label = "checkpoint";
constexpr std::string_view note_prefix = "note ";  // of attributes that hold Trainer::notes()

bool matches(const std::vector<std::string>& patterns, const std::string& layer) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return fnmatch(pattern.c_str(), layer.c_str(), 0) == 0; });
}

/// The first weight that a checkpoint stores with the layer: not the table of an embedding.
std::ptrdiff_t first_own_weight(const LayerPlan& layer) { return layer.table < 0 ? 0 : 1; }

/// Throws Error if a pattern matches no layer that has weights.
void check_patterns(const Plan& plan, const std::vector<std::string>& patterns) {
  std::vector<std::string> names;
  for (const auto& layer : plan.layers)
    if (std::ssize(layer->weights) > first_own_weight(layer)) names.push_back(layer.name);
  for (const auto& pattern : patterns)
    if (std::none_of(names.begin(), names.end(), [&](const auto& name) { return matches({pattern}, name); }))
      fail("--skip \"{}\": the model has no layer with weights of this name{}; it has {}", pattern,
           did_you_mean(pattern, names), quoted_list(names));
}

/// Throws Error unless the checkpoint has a weight in the model's shape.
void check_weight(const CheckpointFile& file, const std::string& layer, const std::string& name, const Shape& shape) {
  const auto found = file.tensors().find(name);
  std::vector<std::string> names;
  for (const auto& [other, ignored] : file.tensors()) names.push_back(other);
  if (found == file.tensors().end())
    fail("the checkpoint {} has no tensor '{}'{}; add --skip \"{}\" to give this layer new weights", file.path(), name,
         did_you_mean(name, names), layer);
  if (found->second != shape.print())
    fail("the checkpoint {} has '{}' with {}, here it is {}; add --skip \"{}\" to give this layer new weights",
         file.path(), name, found->second, shape.print(), layer);
}

/// True for the optimizer's state of another tensor, e.g. "fc/weight.velocity".
bool is_state(const CheckpointFile& file, const std::string& name) {
  const auto dot = name.rfind('.');
  return dot != std::string::npos && file.tensors().contains(name.substr(0, dot));
}

}  // namespace

void Trainer::check_weights() const {
  std::string wrong;
  for (const auto& [name, tensor] : weights())
    if (wrong.empty() && !is_finite(*backend_, tensor.local, stream()))
      wrong = fmt::format(
          "weight '{}' is not finite on rank {} after {}; it is not saved; try a lower --rate or a --warm-up", name,
          world_.rank(), counted(trained_, "step"));
  wrong = agree(world_, wrong);
  if (!wrong.empty()) throw RunFailed(wrong);
}

std::uint64_t Trainer::save(const std::string& path, const std::function<void()>& check) {
  check_weights();
  counter().set_label(checkpoint_label);
  RunRecord record;
  record.model = model_.describe();
  record.step = step_;
  record.samples = samples_;
  record.decay_steps = decay_end();
  record.guard = {guard_->state().scale, guard_->state().good_steps, guard_->state().not_finite,
                  guard_->state().beyond_f16};
  record.options = options_;
  memory_->add_checkpoint(plan(), true, true);
  auto attributes = record.attributes();
  for (const auto& [key, text] : notes_) attributes[std::string(note_prefix) + key] = text;
  return save_checkpoint(path, parameters_->named_everywhere(plan(), *ranks_->gradient_grid, world_.rank()), attributes,
                         *ranks_->control, check);
}

void Trainer::load(const std::string& path, bool optimizer) {
  std::optional<CheckpointFile> file;
  agree_or_throw(world_, [&] { file.emplace(path); });
  load(*file, optimizer);
}

void Trainer::load(const CheckpointFile& file, bool optimizer) {
  counter().set_label(checkpoint_label);
  RunRecord record;
  agree_or_throw(world_, [&] {
    record = RunRecord(file);
    check_same_model(record, file.path(), model_.describe(), optimizer);
    if (optimizer) check_resumable(record, file.path(), options_);
  });
  memory_->add_checkpoint(plan(), optimizer, false);
  const auto named = parameters_->named(plan(), *ranks_->gradient_grid, optimizer);
  file.load(named, *ranks_->control);
  if (optimizer) parameters_->keep_state(plan(), named);
  parameters_->refresh(stream());
  trained_ = record.step;
  if (record.samples > 0) {
    const Index batch = record.options.batch, steps = (record.samples + batch - 1) / batch;  // of an epoch
    epoch_ = (record.step + steps - 1) / steps;
  }
  if (!optimizer) return;
  step_ = record.step;
  for (const auto& [key, text] : file.attributes())
    if (key.starts_with(note_prefix)) notes_[key.substr(note_prefix.size())] = text;
  samples_ = record.samples;
  loaded_decay_ = record.options.optimizer.decay == options_.optimizer.decay ? record.decay_steps : 0;
  const bool scaled = record.options.dtype == DType::f16;  // else the scale of 1 means that there was none
  guard_->restore({scaled ? record.guard.scale : 0, scaled ? record.guard.good_steps : 0, record.guard.not_finite,
                   record.guard.beyond_f16});
}

LoadedWeights Trainer::load_weights(const CheckpointFile& file, const std::vector<std::string>& skip) {
  counter().set_label(checkpoint_label);
  LoadedWeights result;
  std::set<std::string> known;
  agree_or_throw(world_, [&] {
    check_patterns(plan(), skip);
    for (const auto& layer : plan().layers)
      for (const auto& weight : std::span(layer->weights).subspan(static_cast<std::size_t>(first_own_weight(layer)))) {
        const std::string name = fmt::format("{}/{}", layer.name, weight.name);
        if (matches(skip, layer.name)) {
          result.left.push_back(name);
        } else {
          check_weight(file, layer.name, name, weight.shape);
          known.insert(name);
        }
      }
  });
  for (const auto& [name, shape] : file.tensors())
    if (!known.contains(name) && !is_state(file, name)) result.unused.push_back(name);
  memory_->add_checkpoint(plan(), false, false);
  auto named = weights();
  std::erase_if(named, [&](const NamedTensor& tensor) { return !known.contains(tensor.name); });
  file.load(named, *ranks_->control);
  parameters_->refresh(stream());
  return result;
}

}  // namespace partita
