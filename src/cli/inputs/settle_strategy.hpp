#pragma once

#include "partita/strategies/planner/choose_products.hpp"
#include "src/cli/inputs/machine_files.hpp"

#include <string>
#include <vector>

namespace partita::cli {

/// A strategy that leaves nothing open.
struct Settled {
  Strategy strategy;
  std::vector<ProductChoice> choices;  ///< what was chosen for the machine, and by which price
};

/// Settles what a strategy leaves open. Stage boundaries (`stages = N`) are placed by predicted cost so that every rank
/// fits in limit_of(). If no placement that was tried fits, takes the one that exceeds the limit least; check_fits()
/// then reports it. If --machine names a machine, products and convolutions get the algorithms and the layouts of
/// weights that are fastest there (choose_products).
Settled settle_strategy(const Options& options, const Model& model, const Strategy& strategy,
                        const MachineFiles& files);
/// As above, with another workload and other kernel times than those of the options and the files.
Settled settle_strategy(const Options& options, const Model& model, const Strategy& strategy, const Workload& workload,
                        const Machine& machine, const KernelTimes& times);

/// Returns what was chosen and what each choice saves, e.g. `weights "F@data" of fc1 (-0.123 ms)`; "" if
/// nothing was.
std::string print_choices(const std::vector<ProductChoice>& choices);
/// Returns what was chosen and by which price, e.g. `a step takes 1.456 ms, not 1.579 ms, with weights "F@data" of fc1
/// (-0.123 ms)`; "" if nothing was.
std::string choice_note(const std::vector<ProductChoice>& choices);
/// Returns the same in few words, e.g. "a step takes 1.456 ms, not 1.579 ms, as 3 layers run in other ways".
std::string short_choice_note(const std::vector<ProductChoice>& choices);

}  // namespace partita::cli
