#pragma once

#include "partita/model/model.hpp"
#include "partita/strategies/declare/strategy.hpp"

#include <cstddef>
#include <string>
#include <vector>

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

/// The kind of a strategy and the seconds of its step.
struct KindTime {
  StrategyKind kind;
  double seconds = 0;
};

/// A strategy of another kind is of interest up to this multiple of the fastest step. `plan` prints plain ones that are
/// slower.
constexpr double of_interest = 1.25;

/// Chooses at most `most` strategies of a list: the fastest of each kind that is of interest, and more of a kind, or
/// slower ones, only if these are too few. Returns their places in the list, the fastest first.
std::vector<std::size_t> fastest_of_kinds(const std::vector<KindTime>& list, int most);

}  // namespace partita
