#include "partita/strategies/declare/strategy.hpp"

#include "partita/base/error.hpp"
#include "strategies/declare/toml.hpp"

#include <algorithm>

namespace partita {

namespace {

constexpr int most_microbatches = 1 << 16;

Grid read_grid(const Reader& reader, const toml::table& root) {
  const auto text = reader.text(root, "grid");
  if (!text) return {};
  try {
    return Grid::parse(*text);
  } catch (const Error& error) {
    reader.refuse(*root.get("grid"), "{}", error.what());
  }
}

/// [schedule] kind = "1f1b" microbatches = 8
void read_schedule(const Reader& reader, const toml::table& root, Strategy& strategy) {
  const auto* node = root.get("schedule");
  if (node == nullptr) return;
  const auto* table = node->as_table();
  if (table == nullptr) reader.refuse(*node, "'schedule' must be written as [schedule]");
  static const std::vector<std::string> keys{"kind", "microbatches", "groups"};
  reader.check_keys(*table, keys, "[schedule]");
  std::int64_t microbatches = 1;
  if (const auto* count = table->get("microbatches"); count != nullptr) {
    const auto value = count->value_exact<std::int64_t>();
    if (!value || *value < 1 || *value > most_microbatches)
      reader.refuse(*count, "'microbatches' must be a whole number, 1 to {}", most_microbatches);
    microbatches = *value;
  }
  std::int64_t groups = 0;
  if (const auto* count = table->get("groups"); count != nullptr) {
    const auto value = count->value_exact<std::int64_t>();
    if (!value || *value < 1 || *value > most_microbatches)
      reader.refuse(*count, "'groups', the groups of layers per stage, must be a whole number, 1 to {}",
                    most_microbatches);
    groups = *value;
  }
  const auto kind = reader.text(*table, "kind");
  try {
    strategy.schedule(kind.value_or(microbatches == 1 ? "single" : "1f1b"), static_cast<int>(microbatches),
                      static_cast<int>(groups));
  } catch (const Error& error) {
    reader.refuse(kind ? *table->get("kind") : *node, "{}", error.what());
  }
}

/// optimizer = "sharded", weights = "sharded"
bool read_sharded(const Reader& reader, const toml::table& root, const char* key) {
  const auto text = reader.text(root, key);
  if (!text || *text == "replicated") return false;
  if (*text == "sharded") return true;
  reader.refuse(*root.get(key), "there is no {} = \"{}\"; write \"replicated\" or \"sharded\"", key, *text);
}

/// [[group]] layers = ["conv1", "pool3"] grid = "data=2"
Strategy::Group read_group(const Reader& reader, const toml::table& table) {
  static const std::vector<std::string> keys{"layers", "grid"};
  reader.check_keys(table, keys, "[[group]]");
  const auto* layers = table.get("layers");
  const auto* both = layers == nullptr ? nullptr : layers->as_array();
  const auto name = [&](std::size_t i) { return both->get(i)->value_exact<std::string>(); };
  const auto* one = both != nullptr && both->size() == 1 ? both->get(0) : layers;
  if (one != nullptr && one->is_string())
    reader.refuse(*layers, "layers are a group's first and last; for '{0}' alone write layers = [{1}, {1}]",
                  one->as_string()->get(), quoted(one->as_string()->get()));
  if (both == nullptr || both->size() != 2 || !name(0) || !name(1))
    reader.refuse(layers == nullptr ? table : *layers,
                  "[[group]] needs layers = [\"its first layer\", \"its last layer\"]");
  Strategy::Group group{*name(0), *name(1), std::nullopt, reader.place(table)};
  if (table.contains("grid")) group.grid = read_grid(reader, table);
  return group;
}

Strategy::Rule read_rule(const Reader& reader, const toml::table& table) {
  static const std::vector<std::string> keys{"match", "output", "input", "weights", "algorithm", "recompute"};
  reader.check_keys(table, keys, "[[layer]]");
  const auto match = reader.text(table, "match");
  if (!match || match->empty())
    reader.refuse(table, "[[layer]] needs match = \"a layer's name, or a pattern with * and ?\"");
  return {*match,
          {reader.text(table, "output"), reader.text(table, "input"), reader.text(table, "weights"),
           reader.text(table, "algorithm"), reader.boolean(table, "recompute")},
          reader.place(table)};
}

/// Each * matches as little as the rest allows. If the rest fails to match, only the last * needs to match more.
bool glob(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = pattern.npos, taken = 0;  // the last *, and the end of what it matches
  while (t < text.size())
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (star != pattern.npos) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  return pattern.find_first_not_of('*', p) == pattern.npos;
}

}  // namespace

bool Strategy::Rule::exact() const { return match.find_first_of("*?") == std::string::npos; }
bool Strategy::Rule::matches(std::string_view layer) const { return glob(match, layer); }

Strategy::Strategy(std::string_view grid) : grid_(Grid::parse(grid)) {}

Strategy& Strategy::layer(std::string match, LayerRule rule, std::string place) {
  if (place.empty()) place = fmt::format("rule {}", rules_.size() + 1);
  rules_.push_back({std::move(match), std::move(rule), std::move(place)});
  return *this;
}

Strategy& Strategy::layer(const Value& value, LayerRule rule, std::string place) {
  layer(value.name, std::move(rule), std::move(place));
  rules_.back().value = value;
  return *this;
}

Strategy& Strategy::optimizer_state(OptimizerState state) {
  optimizer_state_ = state;
  return *this;
}

Strategy& Strategy::shard_weights(bool shards) {
  shards_weights_ = shards;
  return *this;
}

Strategy& Strategy::bucket_bytes(Index bytes) {
  if (bytes < 1) fail("a bucket has {} bytes; it must have 1 or more", bytes);
  bucket_bytes_ = bytes;
  return *this;
}

Strategy& Strategy::stages(int count) {
  if (count < 1 || count > most_microbatches)
    fail("the number of stages is {}; it must be 1 to {}", count, most_microbatches);
  if (!groups_.empty()) fail("{} stages are requested, but groups are named too; give one of the two", count);
  stage_count_ = count;
  return *this;
}

Strategy& Strategy::group(Group group) {
  if (stage_count_ > 1) fail("{} stages are requested, but groups are named too; give one of the two", stage_count_);
  if (group.place.empty()) group.place = fmt::format("group {}", groups_.size());
  groups_.push_back(std::move(group));
  return *this;
}

int Strategy::groups_per_stage() const {
  return groups_per_stage_ > 0 ? groups_per_stage_ : default_groups_per_stage(schedule_);
}

std::vector<int> Strategy::stages_of_groups() const {
  if (groups_.empty() && stage_count_ == 1) return {0};
  const int each = groups_per_stage(),
            groups = groups_.empty() ? stage_count_ * each : static_cast<int>(groups_.size());
  if (groups % each != 0)
    fail(
        "the schedule '{}' runs {} groups of layers per stage, but the strategy has {} [[group]] entries; "
        "give a multiple of {}",
        name(schedule_), each, groups, each);
  std::vector<int> places;
  for (int group = 0; group < groups; ++group) places.push_back(stage_of_group(schedule_, group, groups / each));
  return places;
}

std::vector<Grid> Strategy::grids() const {
  if (groups_.empty()) {
    std::vector<Grid> grids;
    if (stage_count_ > most_ranks / grid_.size()) fail("the stages together have more than {} ranks", most_ranks);
    for (int stage = 0; stage < stage_count_; ++stage) grids.push_back(grid_.at(stage * grid_.size()));
    return grids;
  }
  const auto places = this->stages_of_groups();
  std::vector<const Group*> entries(static_cast<std::size_t>(*std::max_element(places.begin(), places.end()) + 1),
                                    nullptr);
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    const Group*& first = entries[places[group]];
    const Group& entry = groups_[group];
    if (first == nullptr) first = &entry;
    if (entry.grid.value_or(grid_).print() != first->grid.value_or(grid_).print())
      fail("{}: its grid is \"{}\", but it shares stage {} with layers '{}' to '{}', whose grid is \"{}\"", entry.place,
           entry.grid.value_or(grid_).print(), places[group], first->first, first->last,
           first->grid.value_or(grid_).print());
  }
  std::vector<Grid> grids;
  for (int first = 0; const Group* entry : entries) {
    grids.push_back(entry->grid.value_or(grid_).at(first));
    if (grids.back().size() > most_ranks - first) fail("the stages together have more than {} ranks", most_ranks);
    first += grids.back().size();
  }
  return grids;
}

int Strategy::ranks() const {
  const auto last = grids().back();
  return last.first_rank() + last.size();
}

Strategy& Strategy::schedule(ScheduleKind kind, int microbatches, int groups) {
  if (microbatches < 1 || microbatches > most_microbatches)
    fail("the number of microbatches per step is {}; it must be 1 to {}", microbatches, most_microbatches);
  if (kind == ScheduleKind::single && microbatches > 1)
    fail("the schedule 'single' has one microbatch, not {}; '1f1b' takes any number", microbatches);
  const int usual = default_groups_per_stage(kind);
  if (groups < 0) fail("the number of groups of layers per stage is {}; it must be 1 or more", groups);
  if (groups > 0 && groups != usual && !any_groups(kind))
    fail("the schedule '{}' has {} {} of layers per stage, not {}; 'interleaved' takes any number", name(kind), usual,
         usual == 1 ? "group" : "groups", groups);
  groups_per_stage_ = groups;
  schedule_ = kind;
  microbatches_ = microbatches;
  return *this;
}

Strategy& Strategy::schedule(std::string_view kind, int microbatches, int groups) {
  return schedule(parse_schedule_kind(kind), microbatches, groups);
}

Strategy Strategy::on(Grid grid) const {
  for (const auto& group : groups_)
    if (group.grid)
      fail("{}: the group has its own grid, \"{}\", which \"{}\" cannot replace; change it there", group.place,
           group.grid->print(), grid.print());
  Strategy other = *this;
  other.grid_ = std::move(grid);
  return other;
}

Strategy Strategy::with_rules(std::vector<Rule> rules) const {
  Strategy other = *this;
  other.rules_.clear();
  for (auto& [match, rule, place, value] : rules) {
    other.layer(std::move(match), std::move(rule), std::move(place));
    other.rules_.back().value = value;
  }
  return other;
}

Strategy Strategy::parse(std::string_view text, const std::string& file) {
  const Reader reader(file);
  const toml::table root = reader.parse(text);
  static const std::vector<std::string> keys{"grid",     "optimizer", "weights", "bucket_bytes",
                                             "schedule", "stages",    "group",   "layer"};
  reader.check_keys(root, keys, "a strategy");
  Strategy strategy;
  strategy.file_ = file;
  strategy.grid_ = read_grid(reader, root);
  if (read_sharded(reader, root, "optimizer")) strategy.optimizer_state_ = OptimizerState::sharded;
  strategy.shards_weights_ = read_sharded(reader, root, "weights");
  if (const auto* bytes = root.get("bucket_bytes"); bytes != nullptr) {
    const auto value = bytes->value_exact<std::int64_t>();
    if (!value || *value < 1) reader.refuse(*bytes, "'bucket_bytes' must be a whole number, 1 or more");
    strategy.bucket_bytes_ = *value;
  }
  read_schedule(reader, root, strategy);
  if (const auto* stages = root.get("stages"); stages != nullptr) {
    if (stages->is_table() || stages->is_array_of_tables())
      reader.refuse(*stages, "'stages' is a number of stages; the layers of one are written as [[group]]");
    const auto value = stages->value_exact<std::int64_t>();
    if (!value || *value < 1 || *value > most_microbatches)
      reader.refuse(*stages, "'stages' must be a whole number, 1 to {}", most_microbatches);
    if (root.contains("group"))
      reader.refuse(*stages, "'stages' chooses the groups automatically; remove it or [[group]]");
    strategy.stages(static_cast<int>(*value));
  }
  for (const auto* table : reader.tables(root, "group")) strategy.group(read_group(reader, *table));
  for (const auto* table : reader.tables(root, "layer")) strategy.rules_.push_back(read_rule(reader, *table));
  return strategy;
}

LayerRule Strategy::rule_of(const std::string& layer) const {
  LayerRule merged;
  for (const Rule& each : rules_) {
    if (!each.matches(layer)) continue;
    const LayerRule& later = each.rule;
    if (later.output) merged.output = later.output;
    if (later.input) merged.input = later.input;
    if (later.weights) merged.weights = later.weights;
    if (later.algorithm) merged.algorithm = later.algorithm;
    if (later.recompute) merged.recompute = later.recompute;
  }
  return merged;
}

Strategy Strategy::load(const std::string& path) { return parse(read_file("strategy", path), path); }

std::string Strategy::print() const {
  std::string text = fmt::format("grid = \"{}\"\n", grid_.print());
  if (optimizer_state_ == OptimizerState::sharded) text += "optimizer = \"sharded\"\n";
  if (shards_weights_) text += "weights = \"sharded\"\n";
  if (bucket_bytes_ != Strategy().bucket_bytes_) text += fmt::format("bucket_bytes = {}\n", bucket_bytes_);
  if (stage_count_ > 1) text += fmt::format("stages = {}\n", stage_count_);
  if (schedule_ != ScheduleKind::single || microbatches_ > 1)
    text += fmt::format("\n[schedule]\nkind = \"{}\"\nmicrobatches = {}\n{}", name(schedule_), microbatches_,
                        groups_per_stage_ > 0 ? fmt::format("groups = {}\n", groups_per_stage_) : "");
  for (const auto& [first, last, grid, place] : groups_) {
    text += fmt::format("\n[[group]]\nlayers = [{}, {}]\n", quoted(first), quoted(last));
    if (grid) text += fmt::format("grid = \"{}\"\n", grid->print());
  }
  for (const auto& [match, rule, place, value] : rules_) {
    text += fmt::format("\n[[layer]]\nmatch = {}\n", quoted(match));
    if (rule.output) text += fmt::format("output = {}\n", quoted(*rule.output));
    if (rule.input) text += fmt::format("input = {}\n", quoted(*rule.input));
    if (rule.weights) text += fmt::format("weights = {}\n", quoted(*rule.weights));
    if (rule.algorithm) text += fmt::format("algorithm = {}\n", quoted(rule.algorithm->text()));
    if (rule.recompute) text += fmt::format("recompute = {}\n", *rule.recompute);
  }
  return text;
}

}  // namespace partita
