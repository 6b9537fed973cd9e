#pragma once

#include "partita/base/grid.hpp"
#include "partita/model/algorithm.hpp"
#include "partita/model/value.hpp"
#include "partita/strategies/declare/schedule_kind.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// What a strategy says of the layers that match; what it does not say is derived.
struct LayerRule {
  std::optional<std::string> output = std::nullopt;       ///< what the layer's output looks like, e.g. "N@data H@y"
  std::optional<std::string> input = std::nullopt;        ///< what its input is redistributed to
  std::optional<std::string> weights = std::nullopt;      ///< how its first weight lies, e.g. "F@c"
  std::optional<AlgorithmName> algorithm = std::nullopt;  ///< e.g. Algorithm::stationary_w, or "stationary-w"
  /// What the layer keeps for its backward is computed once more instead (Chen et al. 2016).
  std::optional<bool> recompute = std::nullopt;
};

/// Ranks of a strategy's stages together, at most; and those that the planner takes.
inline constexpr int most_ranks = 1 << 20;

/// How a model is partitioned, as data: a grid and rules by layer name. It never changes what a model computes, only
/// what it costs, but that batch normalisation sees each microbatch by itself, and the
/// parts of ranks where the model asks for such statistics. Rules merge key by key, later ones win; a rule that matches no layer is an error when it is bound.
///
///     Strategy s("data=2 y=2");
///     s.layer("conv*", {.output = "N@data H@y"});
///     s.layer(fc, {.output = "N@data C@y"});          // the value that model.linear("fc", ...) returned
class Strategy {
 public:
  /// A rule with the layers that it is for and the place where it stands, for messages.
  struct Rule {
    std::string match;  ///< a name, or a glob with * and ?
    LayerRule rule;
    std::string place;  ///< "hybrid.toml, line 12" or "rule 3"
    std::optional<Value> value =
        std::nullopt;  ///< the layer, if the rule was given its value: `match` is its name then
    /// True if `match` is a plain name: such a rule must fit its layer exactly, others drop what a layer lacks.
    bool exact() const;
    bool matches(std::string_view layer) const;
  };

  /// One rank, no rule: the serial program.
  Strategy() = default;
  /// Throws Error for a grid that cannot be read.
  explicit Strategy(std::string_view grid);

  /// Reads a TOML file (see README, "Strategies"). Throws Error with file, line and column for what is no TOML, for
  /// unknown keys and for values of the wrong type.
  static Strategy load(const std::string& path);
  /// The same for a text; `file` stands in messages.
  static Strategy parse(std::string_view text, const std::string& file);

  /// Adds a rule for the layers that `match` names; `place` stands for the rule in messages ("rule 3" if it is empty).
  Strategy& layer(std::string match, LayerRule rule, std::string place = "");
  /// Adds a rule for the layer that made `value`. bind() throws Error if the value is of another model.
  Strategy& layer(const Value& value, LayerRule rule, std::string place = "");

  /// Consecutive layers, and the grid of the stage that runs them.
  struct Group {
    std::string first, last;                  ///< layers, in the model's order
    std::optional<Grid> grid = std::nullopt;  ///< the strategy's, if it has none of its own
    std::string place = "";                   ///< for messages
  };
  /// Adds a group of layers, in the model's order. Without any, one group holds all layers. Each stage runs one group, or several
  /// where the schedule asks for it. Stages take consecutive ranks, the first from rank 0.
  /// Throws Error if a number of stages was set.
  Strategy& group(Group group);
  const std::vector<Group>& groups() const { return groups_; }
  /// Asks for `count` stages on equal grids whose boundaries are still open: place_stages() closes them, and bind() refuses a strategy
  /// with open ones. Throws Error below 1, and if groups were added.
  Strategy& stages(int count);
  int stage_count() const { return stage_count_; }
  /// The stage of each group.
  std::vector<int> stages_of_groups() const;
  /// The grids of all stages, placed one after the other. Throws Error if groups of one stage name different grids, or if they do
  /// not fill the stages.
  std::vector<Grid> grids() const;
  /// Ranks of all stages.
  int ranks() const;

  /// Who updates a weight and holds the optimizer's state for it: every rank that holds the weight, or (sharded) each replica a
  /// share of it (ZeRO stage 1, Rajbhandari et al. 2020).
  enum class OptimizerState : std::uint8_t { replicated, sharded };
  Strategy& optimizer_state(OptimizerState state);
  OptimizerState optimizer_state() const { return optimizer_state_; }
  /// Gradients are summed in buckets of at most so many bytes (plan_buckets). Throws Error below 1.
  Strategy& bucket_bytes(Index bytes);
  Index bucket_bytes() const { return bucket_bytes_; }
  /// Sets how the microbatches of a step are arranged. The gradients of all microbatches are summed before the weights
  /// change. `groups_per_stage` 0 stands for the kind's default. Throws Error for numbers that the kind does not take.
  Strategy& schedule(ScheduleKind kind, int microbatches, int groups_per_stage = 0);
  /// Sets the schedule by the name of its kind, e.g. "1f1b". Throws Error for an unknown name too.
  Strategy& schedule(std::string_view kind, int microbatches, int groups_per_stage = 0);
  ScheduleKind schedule() const { return schedule_; }
  int microbatches() const { return microbatches_; }
  int groups_per_stage() const;

  const Grid& grid() const { return grid_; }
  const std::vector<Rule>& rules() const { return rules_; }
  /// Where it comes from: the file's path, or "".
  const std::string& file() const { return file_; }
  /// The same strategy on another grid, as every stage's. Throws Error if a stage has a grid of its own.
  Strategy on(Grid grid) const;
  /// One line for each old key in the file, with its place and the key's new name.
  const std::vector<std::string>& renamed_keys() const { return renamed_keys_; }
  /// As a TOML text that `parse` reads back.
  std::string print() const;

 private:
  Grid grid_;
  std::vector<Rule> rules_;
  std::string file_;
  OptimizerState optimizer_state_ = OptimizerState::replicated;
  Index bucket_bytes_ = Index{4} << 20;
  ScheduleKind schedule_ = ScheduleKind::single;
  int microbatches_ = 1;
  int groups_per_stage_ = 0;  // 0: the kind's default
  int stage_count_ = 1;       // asked for, where no group is named
  std::vector<Group> groups_;
  std::vector<std::string> renamed_keys_;
};

}  // namespace partita
