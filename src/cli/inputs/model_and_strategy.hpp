#pragma once

#include "src/cli/options/options.hpp"

#include <string>
#include <utility>
#include <vector>

namespace partita::cli {

/// Makes the model that the options describe, or the program's own.
Model make_model(const Options& options, const ModelFactory& factory);
/// True if the options name a strategy, a file or the declared one.
bool names_strategy(const Options& options);
/// Makes the strategy that the options describe. By default, the samples are split over `ranks` ranks.
Strategy make_strategy(const Options& options, int ranks);
/// Adds rules such as "conv*: N@data H" to the strategy. `option` is the name of the option for error messages.
void add_rules(Strategy& strategy, const std::vector<std::string>& rules, std::string_view option);
/// Makes the strategies of --strategies, each with the name of its file. Without --strategies, makes the one strategy
/// that make_strategy() returns.
std::vector<std::pair<std::string, Strategy>> make_strategies(const Options& options, int ranks);

}  // namespace partita::cli
