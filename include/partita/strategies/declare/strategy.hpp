#pragma once

#include "partita/base/grid.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// What a strategy says of the layers that match; what it does not say is derived.
struct LayerRule {
  std::optional<std::string> output = std::nullopt;     ///< what the layer's output looks like, e.g. "N@data H@y"
  std::optional<std::string> input = std::nullopt;      ///< what its input is redistributed to
  std::optional<std::string> weights = std::nullopt;    ///< how its first weight lies, e.g. "F@c"
  std::optional<std::string> algorithm = std::nullopt;  ///< "auto", or one that the layer's kind names
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
class Strategy {
 public:
  /// A rule with the layers that it is for and the place where it stands, for messages.
  struct Rule {
    std::string match;  ///< a name, or a glob with * and ?
    LayerRule rule;
    std::string place;  ///< "hybrid.toml, line 12" or "rule 3"
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

  /// Adds a rule; `place` stands for it in messages ("rule 3" where it is empty).
  Strategy& layer(std::string match, LayerRule rule, std::string place = "");

  /// A group of consecutive layers and the grid that runs it.
  struct Stage {
    std::string first, last;                  ///< layers, in the model's order
    std::optional<Grid> grid = std::nullopt;  ///< the strategy's, if it has none of its own
    std::string place = "";                   ///< for messages
  };
  /// Adds a stage; stages take consecutive ranks, the first from rank 0. Without any, all layers are one. Where the
  /// schedule runs several groups of layers a stage, each has an entry, in the model's order.
  Strategy& stage(Stage stage);
  const std::vector<Stage>& stages() const { return stages_; }
  /// So many stages on grids of their own, all alike, of which `bind` places the boundaries (balanced). Throws Error below 1, and
  /// where stages are named too.
  Strategy& stages(int count);
  int stage_count() const { return stage_count_; }
  /// The stage of each entry.
  std::vector<int> stages_of_groups() const;
  /// The grids of all stages, placed one after the other. Throws Error if entries of one stage differ in it, or do not fill
  /// the stages.
  std::vector<Grid> grids() const;
  /// Ranks of all stages.
  int ranks() const;

  /// How weights are updated: by every rank that holds them, or (distributed) each by one of those that would do the
  /// same; these share the optimizer's state (Rajbhandari et al. 2020, stage 1).
  enum class OptimizerState : std::uint8_t { replicated, sharded };
  Strategy& optimizer_state(OptimizerState state);
  OptimizerState optimizer_state() const { return optimizer_state_; }
  /// Gradients are summed in buckets of at most so many bytes (plan_buckets). Throws Error below 1.
  Strategy& bucket_bytes(Index bytes);
  Index bucket_bytes() const { return bucket_bytes_; }
  /// How the microbatches of a step are arranged: a kind of generate(), or "single" for one microbatch. Gradients of all
  /// are summed before the weights change. Throws Error for an unknown kind and below 1.
  /// `groups` of layers a stage, each with an entry of stages(); 0: as many as the kind takes by default.
  Strategy& schedule(const std::string& kind, int microbatches, int groups = 0);
  const std::string& schedule() const { return schedule_; }
  int microbatches() const { return microbatches_; }
  int groups_per_stage() const;

  const Grid& grid() const { return grid_; }
  const std::vector<Rule>& rules() const { return rules_; }
  /// Where it comes from: the file's path, or "".
  const std::string& file() const { return file_; }
  /// The same strategy on another grid, as every stage's. Throws Error if a stage has a grid of its own.
  Strategy on(Grid grid) const;
  /// As a TOML text that `parse` reads back.
  std::string print() const;

 private:
  Grid grid_;
  std::vector<Rule> rules_;
  std::string file_;
  OptimizerState optimizer_state_ = OptimizerState::replicated;
  Index bucket_bytes_ = Index{4} << 20;
  std::string schedule_ = "single";
  int microbatches_ = 1, groups_ = 0, stage_count_ = 1;  // of stages, where none is named
  std::vector<Stage> stages_;
};

}  // namespace partita
