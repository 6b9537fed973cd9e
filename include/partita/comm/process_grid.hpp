#pragma once

#include "partita/base/grid.hpp"
#include "partita/comm/solo.hpp"

#include <map>
#include <memory>
#include <vector>

namespace partita {

/// A grid with its communicators: one for all of its ranks, and one for each axis set that a plan uses. In each
/// communicator the ranks have the order of Grid::group: ascending grid ranks.
class ProcessGrid {
 public:
  /// Makes the communicators in the given order. Rank r of `world` is rank r of the grid. Throws Error if the sizes of
  /// `world` and the grid differ. Collective: every rank of `world` calls it.
  /// @pre `world` outlives the grid.
  ProcessGrid(Grid grid, Communicator& world, const std::vector<AxisSet>& axis_sets)
      : ProcessGrid(std::move(grid), borrow(world), axis_sets) {}
  /// Makes the communicators and shares the ownership of `world`.
  ProcessGrid(Grid grid, std::shared_ptr<Communicator> world, const std::vector<AxisSet>& axis_sets);

  /// Returns the process grid of one rank without the other ranks (see make_solo).
  static ProcessGrid alone(Grid grid, int rank, const std::vector<AxisSet>& axis_sets, bool asynchronous,
                           std::vector<StandIn>* log = nullptr, Device& device = host_device());

  /// Makes communicators for further axis sets. Existing communicators stay. Collective: every rank of `world` calls
  /// it.
  void add(const std::vector<AxisSet>& axis_sets);

  const Grid& grid() const { return grid_; }
  int rank() const { return world_->rank(); }
  Communicator& world() const { return *world_; }
  /// Returns the communicator of this rank's group along `axes`.
  /// @pre `axes` was passed to the constructor or to `add`.
  Communicator& along(AxisSet axes) const;
  /// Returns the bytes that this rank shares with other ranks in the communicators of axis sets.
  Index shared_bytes() const;

 private:
  ProcessGrid(Grid grid, std::shared_ptr<Communicator> world) : grid_(std::move(grid)), world_(std::move(world)) {}

  Grid grid_;
  std::shared_ptr<Communicator> world_;
  std::map<AxisSet, std::shared_ptr<Communicator>> groups_;
};

}  // namespace partita
