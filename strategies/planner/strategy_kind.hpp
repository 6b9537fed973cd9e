#pragma once

#include "partita/model/model.hpp"
#include "partita/strategies/declare/strategy.hpp"

#include <string>

namespace partita {

/// What distinguishes strategies for a user: which dimensions they cut. Strategies of one kind differ in numbers of
/// ranks, in layouts of some layers, or in their schedule.
struct StrategyKind {
  bool stages = false, samples = false, space = false, channels = false;
  auto operator<=>(const StrategyKind&) const = default;
  /// Returns what is cut: "samples, channels", "stages, samples"; "nothing" if each rank has everything.
  std::string print() const;
};

/// Returns the kind of a strategy, by its grids and the outputs that its rules give the layers. Throws Error if a
/// layout of the rules cannot be parsed, or as Strategy::grids() does.
StrategyKind kind_of(const Model& model, const Strategy& strategy);

}  // namespace partita
