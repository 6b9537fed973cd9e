#pragma once

#include "src/cli/options/options.hpp"

#include <optional>
#include <string>
#include <vector>

namespace partita::cli {

/// A strategy for which the number of ranks is still open: a strategy file, a grid such as "data={} y=2", or both. {}
/// stands for the ranks that the other axes leave.
struct RankPattern {
  std::string file, grid;

  std::string name() const;
  /// True if it has one number of ranks.
  bool fixed() const;
};

/// A strategy on a number of ranks.
struct RankCase {
  std::string name;  ///< name of the pattern, the same for all its rank counts
  int ranks = 1;
  std::vector<std::string> arguments;  ///< options of `train` that give the strategy
  Strategy strategy;
};

/// Throws Error if the numbers of ranks do not ascend, or if one is less than 1.
void check_rank_counts(const std::vector<int>& ranks);

/// Returns every file on every grid. Without files, it is the strategy that the options name. Without all of these, it
/// is the samples over all ranks.
std::vector<RankPattern> rank_patterns(const std::vector<std::string>& files, const std::vector<std::string>& grids,
                                       const Options& options);

/// Returns the pattern on `ranks` ranks, or nothing if it does not divide this number. A pattern without a strategy
/// file and rules shards by the names of its axes: data (N), c (C), z (D), y (H), x (W). Throws Error if the pattern
/// cannot be read, or if an axis has another name.
std::optional<RankCase> on_ranks(const RankPattern& pattern, int ranks, const Options& options);

}  // namespace partita::cli
