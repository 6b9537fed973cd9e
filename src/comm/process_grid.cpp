#include "partita/comm/process_grid.hpp"

#include "partita/base/error.hpp"

#include <algorithm>

namespace partita {

ProcessGrid::ProcessGrid(Grid grid, std::shared_ptr<Communicator> world, const std::vector<AxisSet>& axis_sets)
    : grid_(std::move(grid)), world_(std::move(world)) {
  if (world_->size() != grid_.size())
    fail("the grid \"{}\" has {} ranks, but the job has {}", grid_.print(), grid_.size(), world_->size());
  add(axis_sets);
}

ProcessGrid ProcessGrid::alone(Grid grid, int rank, const std::vector<AxisSet>& axis_sets, bool asynchronous,
                               std::vector<StandIn>* log, Device& device) {
  const int size = grid.size();
  ProcessGrid made(std::move(grid), make_solo(rank, size, asynchronous, log, device));
  for (const AxisSet axes : axis_sets) {
    const auto group = made.grid_.group(rank, axes);
    const auto place = std::find(group.begin(), group.end(), rank) - group.begin();
    made.groups_[axes] = make_solo(static_cast<int>(place), static_cast<int>(group.size()), asynchronous, log, device);
  }
  return made;
}

void ProcessGrid::add(const std::vector<AxisSet>& axis_sets) {
  for (const AxisSet axes : axis_sets) {
    if (groups_.contains(axes)) continue;
    const auto group = grid_.group(rank(), axes);
    const auto& comm = groups_[axes] = world_->split(group.front(), rank());
    require(group[comm->rank()] == rank(), "the ranks of a group must ascend with those of the grid");
  }
}

Index ProcessGrid::shared_bytes() const {
  Index bytes = 0;
  for (const auto& [axes, comm] : groups_) bytes += comm->shared_bytes();
  return bytes;
}

Communicator& ProcessGrid::along(AxisSet axes) const {
  const auto group = groups_.find(axes);
  require(group != groups_.end(), "a communicator must be made before it is used");
  return *group->second;
}

}  // namespace partita
