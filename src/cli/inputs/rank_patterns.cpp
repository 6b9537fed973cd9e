#include "src/cli/inputs/rank_patterns.hpp"

#include "partita/base/error.hpp"
#include "src/cli/inputs/model_and_strategy.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace partita::cli {

namespace {

constexpr const char* wildcard = "{}";

/// Returns the grid of the pattern for `ranks` ranks, or "" if the pattern does not fit this number.
std::string fill_in(const std::string& pattern, int ranks) {
  const auto at = pattern.find(wildcard);
  const auto with = [&](int extent) {
    return at == std::string::npos ? pattern : std::string(pattern).replace(at, 2, std::to_string(extent));
  };
  if (at != std::string::npos && pattern.find(wildcard, at + 1) != std::string::npos)
    fail("--grid \"{}\": only one axis can have {{}}", pattern);
  const int others = Grid::parse(with(1)).size();
  return ranks % others == 0 ? with(ranks / others) : "";
}

/// Returns the rule by which axes of a grid shard the dimensions that their names stand for, e.g. "*: N@data H@y".
std::string rule_of_axes(const std::string& pattern, const Grid& grid) {
  static constexpr std::pair<std::string_view, char> dimensions[] = {{"data", 'N'}, {"c", 'C'}, {"z", 'D'},
                                                                     {"y", 'H'},    {"x", 'W'}, {"seq", 'L'}};
  std::string rule = "*:";
  int known = 0;
  for (const auto& [axis, dimension] : dimensions)
    for (int each = 0; each < grid.axes(); ++each) {
      if (grid.name(each) != axis) continue;
      rule += fmt::format(" {}@{}", dimension, axis);
      ++known;
    }
  if (known < grid.axes())
    fail(
        "--grid \"{}\" without --strategy or --rule: only axes named data, c, z, y, x and seq say which dimension they "
        "shard; add a rule, e.g. --rule \"*: N@data H@rows\"",
        pattern);
  return rule;
}

}  // namespace

std::string RankPattern::name() const {
  if (file.empty()) return grid;
  return grid.empty() ? file : fmt::format("{} on {}", file, grid);
}

bool RankPattern::fixed() const { return grid.find(wildcard) == std::string::npos; }

void check_rank_counts(const std::vector<int>& ranks) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 1) fail("--ranks {}: a run has 1 rank or more", ranks[i]);
    if (i > 0 && ranks[i] <= ranks[i - 1])
      fail("--ranks {}: write each number once, in ascending order", fmt::join(ranks, " "));
  }
}

std::vector<RankPattern> rank_patterns(const std::vector<std::string>& given, const std::vector<std::string>& grids,
                                       const Options& options) {
  // "none" alone is the default, which shards samples over all ranks.
  const bool one_file = given.empty() && !options.strategy.empty() && (names_strategy(options) || !grids.empty());
  const auto files = one_file ? std::vector{options.strategy} : given;
  if (files.empty() && grids.empty()) {
    if (!options.rules.empty())
      fail("--rule without --grid or --strategy: name the grid's axes, e.g. --grid \"data={{}}\"");
    return {{"", "data={}"}};
  }
  std::vector<RankPattern> all;
  for (const auto& file : files.empty() ? std::vector<std::string>{""} : files)
    for (const auto& grid : grids.empty() ? std::vector<std::string>{""} : grids) all.push_back({file, grid});
  return all;
}

std::optional<RankCase> on_ranks(const RankPattern& pattern, int ranks, const Options& given) {
  RankCase made{.name = pattern.name(), .ranks = ranks, .arguments = {}, .strategy = {}};
  Options options = given;
  if (!pattern.file.empty()) {
    options.strategy = pattern.file;
    made.arguments = {"--strategy", pattern.file};
  }
  if (!pattern.grid.empty()) {
    options.grid = fill_in(pattern.grid, ranks);
    if (options.grid.empty()) return std::nullopt;
    made.arguments.insert(made.arguments.end(), {"--grid", options.grid});
  }
  if (!names_strategy(options) && options.rules.empty()) {
    options.rules = {rule_of_axes(pattern.grid, Grid::parse(options.grid))};
    made.arguments.insert(made.arguments.end(), {"--rule", options.rules.front()});
  }
  made.strategy = make_strategy(options, ranks);
  return made.strategy.ranks() == ranks ? std::optional(std::move(made)) : std::nullopt;
}

}  // namespace partita::cli
