#include "strategies/schedule/dependencies.hpp"

#include "partita/base/error.hpp"

#include <algorithm>

namespace partita {

namespace {

// Numbers of action kinds that have a row per group. Transfers have a row per edge.
constexpr std::size_t computes = 5, updates = 2;

}  // namespace

Dependencies::Dependencies(const Schedule& schedule, const GroupGraph& graph)
    : graph_(graph),
      microbatches_(schedule.microbatches()),
      places_(schedule.stages_of_groups()),
      columns_(std::max(microbatches_, static_cast<int>(places_.size()))),
      replica_of_(static_cast<std::size_t>(microbatches_), -1) {
  const auto rows =
      (computes + updates) * static_cast<std::size_t>(graph.groups()) + 4 * static_cast<std::size_t>(graph.edges());
  for (auto& place : places_) place.resize(static_cast<std::size_t>(graph.groups()), -1);
  present_.assign(rows * static_cast<std::size_t>(columns_), false);
  for (std::size_t stage = 0; stage < schedule.stages.size(); ++stage)
    for (std::size_t i = 0; i < schedule.stages[stage].size(); ++i) {
      const Action& action = schedule.stages[stage][i];
      if (action.group >= graph.groups())
        fail("{}stage {}: {}: there are {} groups of layers, 0 to {}", schedule.source(stage, i), stage, action.print(),
             graph.groups(), graph.groups() - 1);
      if (action.is_transfer()) {
        transfers_ = true;
        const bool down = action.kind == Kind::send_output || action.kind == Kind::receive_gradient;
        const int from = down ? action.group : action.peer, to = down ? action.peer : action.group;
        if (from < 0 || to >= graph.groups() || graph.edge(from, to) < 0)
          fail("{}stage {}: {}: group {} does not feed group {}", schedule.source(stage, i), stage, action.print(),
               from, to);
      } else if (action.is_compute()) {
        int& replica = replica_of_[action.microbatch];
        if (replica < 0) replica = action.replica;
      }
      present_[index(action)] = true;
    }
  std::replace(replica_of_.begin(), replica_of_.end(), -1, 0);
}

std::size_t Dependencies::index(const Action& a) const {
  const auto groups = static_cast<std::size_t>(graph_.groups()), group = static_cast<std::size_t>(a.group);
  const auto columns = static_cast<std::size_t>(columns_);
  const auto at = [&](std::size_t row, int column) { return row * columns + static_cast<std::size_t>(column); };
  if (a.is_compute()) return at(static_cast<std::size_t>(a.kind) * groups + group, a.microbatch);
  if (a.kind == Kind::reduce) return at(computes * groups + group, a.replica);
  if (a.kind == Kind::step) return at((computes + 1) * groups + group, a.replica);
  const bool down = a.kind == Kind::send_output || a.kind == Kind::receive_gradient;
  const auto edge = static_cast<std::size_t>(down ? graph_.edge(a.group, a.peer) : graph_.edge(a.peer, a.group));
  const auto kind = static_cast<std::size_t>(a.kind) - static_cast<std::size_t>(Kind::send_output);
  return at((computes + updates) * groups + kind * static_cast<std::size_t>(graph_.edges()) + edge, a.microbatch);
}

}  // namespace partita
