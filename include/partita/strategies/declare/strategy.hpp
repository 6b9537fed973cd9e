#pragma once

#include "partita/base/grid.hpp"
#include "partita/model/algorithm_name.hpp"
#include "partita/model/value.hpp"
#include "partita/strategies/declare/schedule_kind.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// The settings that a strategy gives to matching layers. Settings that are not given are derived.
struct LayerRule {
  std::optional<std::string> output = std::nullopt;       ///< layout of the layer's output, e.g. "N@data H@y"
  std::optional<std::string> input = std::nullopt;        ///< layout that its inputs are redistributed to
  std::optional<std::string> weights = std::nullopt;      ///< layout of its first weight, e.g. "F@c"
  std::optional<AlgorithmName> algorithm = std::nullopt;  ///< Algorithm::stationary_w, or "stationary-w"
  /// If true, what the layer keeps for its backward pass is recomputed instead (Chen et al. 2016).
  std::optional<bool> recompute = std::nullopt;
};

/// Maximum number of ranks of all stages together, and of the ranks that the planner accepts.
inline constexpr int most_ranks = 1 << 20;

/// How a model is partitioned, as data: a grid and rules by layer name. A strategy changes the cost of a model but not
/// what it computes, with one exception: batch normalization computes its statistics per microbatch, and per part of
/// the ranks if the model asks for that. Rules merge key by key, and later ones win. A rule that matches no layer is an
/// error when the strategy is bound.
///
///     Strategy s("data=2 y=2");
///     s.layer("conv*", {.output = "N@data H@y"});
///     s.layer(fc, {.output = "N@data C@y"});          // the value that model.linear("fc", ...) returned
class Strategy {
 public:
  /// A rule, the layers that it applies to, and its position, for messages.
  struct Rule {
    std::string match;  ///< a name, or a glob with * and ?
    LayerRule rule;
    std::string place;                          ///< position for messages: "hybrid.toml, line 12" or "rule 3"
    std::optional<Value> value = std::nullopt;  ///< the layer, if the rule was given its value
    /// Returns true if `match` is a plain name. Such a rule must fit its layer exactly; others ignore what a layer
    /// lacks.
    bool exact() const;
    bool matches(std::string_view layer) const;
  };

  /// One rank and no rules: the serial program.
  Strategy() = default;
  /// A strategy on this grid. Throws Error if the grid cannot be parsed.
  explicit Strategy(std::string_view grid);

  /// Reads a TOML file (docs/strategies.md lists its keys). Throws Error with file, line and column for invalid TOML,
  /// unknown keys and values of the wrong type.
  static Strategy load(const std::string& path);
  /// Reads a strategy from a text. `file` is its name in messages.
  static Strategy parse(std::string_view text, const std::string& file);

  /// Adds a rule for the layers that `match` names. `place` is its position in messages ("rule 3" if empty).
  Strategy& layer(std::string match, LayerRule rule, std::string place = "");
  /// Adds a rule for the layer that made `value`. bind() throws Error if the value is of another model.
  Strategy& layer(const Value& value, LayerRule rule, std::string place = "");

  /// A group of consecutive layers, and the grid of the stage that runs it.
  struct Group {
    std::string first, last;                  ///< first and last layer, in the model's order
    std::optional<Grid> grid = std::nullopt;  ///< the strategy's grid if not given
    std::string place = "";                   ///< position for messages
  };
  /// Adds a group of layers, in the model's order. Without any, one group holds all layers. Each stage runs one group,
  /// or several if the schedule asks for it. Stages take consecutive ranks, the first from rank 0. Throws Error if a
  /// number of stages was set.
  Strategy& group(Group group);
  const std::vector<Group>& groups() const { return groups_; }
  /// Asks for `count` stages on equal grids without choosing their boundaries. place_stages() chooses them; bind()
  /// refuses a strategy without them. Throws Error if count is below 1, or if groups were added.
  Strategy& stages(int count);
  int stage_count() const { return stage_count_; }
  /// Returns the stage of each group.
  std::vector<int> stages_of_groups() const;
  /// Returns the grids of all stages, each placed on the ranks after the previous one. Throws Error if groups of one
  /// stage name different grids, or if the groups do not fill the stages.
  std::vector<Grid> grids() const;
  /// Number of ranks of all stages.
  int ranks() const;

  /// Which ranks update a weight and hold its optimizer state: every rank that holds the weight (replicated), or each
  /// replica for its share of the weight (sharded: ZeRO stage 1, Rajbhandari et al. 2020).
  enum class OptimizerState : std::uint8_t { replicated, sharded };
  Strategy& optimizer_state(OptimizerState state);
  OptimizerState optimizer_state() const { return optimizer_state_; }
  /// Lets the weights of every layer rest in shards: ranks that would hold the same weights, but compute with other
  /// samples or parts of space, hold parts of them. These are gathered one layer ahead of each use and freed after it,
  /// and gradients are scattered (ZeRO stage 3, fully sharded data parallelism). A layer's rule says with `weights` how
  /// one layer does so.
  Strategy& shard_weights(bool shards = true);
  bool shards_weights() const { return shards_weights_; }
  /// Sums gradients in buckets of at most `bytes` bytes (plan_buckets). Throws Error below 1.
  Strategy& bucket_bytes(Index bytes);
  Index bucket_bytes() const { return bucket_bytes_; }
  /// Sets how the microbatches of a step are scheduled. The gradients of all microbatches are summed before the weights
  /// change. `groups_per_stage` 0 stands for the kind's default. Throws Error for numbers that the kind does not take.
  Strategy& schedule(ScheduleKind kind, int microbatches, int groups_per_stage = 0);
  /// Sets the schedule by the name of its kind, e.g. "1f1b". Throws Error for an unknown name too.
  Strategy& schedule(std::string_view kind, int microbatches, int groups_per_stage = 0);
  ScheduleKind schedule() const { return schedule_; }
  int microbatches() const { return microbatches_; }
  int groups_per_stage() const;

  const Grid& grid() const { return grid_; }
  const std::vector<Rule>& rules() const { return rules_; }
  /// Returns all that the rules say of a layer. Later rules win.
  LayerRule rule_of(const std::string& layer) const;
  /// The file that the strategy was read from, or "".
  const std::string& file() const { return file_; }
  /// Returns the same strategy with another grid for every stage. Throws Error if a group has its own grid.
  Strategy on(Grid grid) const;
  /// Returns the same strategy with other rules.
  Strategy with_rules(std::vector<Rule> rules) const;
  /// Returns a TOML text that `parse` reads back.
  std::string print() const;

 private:
  Grid grid_;
  std::vector<Rule> rules_;
  std::string file_;
  OptimizerState optimizer_state_ = OptimizerState::replicated;
  bool shards_weights_ = false;
  Index bucket_bytes_ = Index{4} << 20;
  ScheduleKind schedule_ = ScheduleKind::single;
  int microbatches_ = 1;
  int groups_per_stage_ = 0;  // 0: the kind's default
  int stage_count_ = 1;       // number of stages asked for, if no groups are named
  std::vector<Group> groups_;
};

}  // namespace partita
