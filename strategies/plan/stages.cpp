#include "strategies/plan/stages.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/schedule/generators.hpp"

#include <algorithm>
#include <set>

namespace partita {

namespace {

int find_layer(const Model& model, const Strategy::Group& group, const std::string& name) {
  const int layer = model.find(name);
  if (layer >= 0) return layer;
  std::vector<std::string> names;
  for (const auto& each : model.layers()) names.push_back(each.name);
  fail("{}: '{}' is not a layer of the model '{}'{}; it has {}", group.place, name, model.name(),
       did_you_mean(name, names), quoted_list(names));
}

}  // namespace

std::vector<int> groups_of_layers(const Model& model, const Strategy& strategy) {
  const auto& layers = model.layers();
  std::vector<int> groups;
  for (const auto& group : strategy.groups()) {
    const int first = find_layer(model, group, group.first), last = find_layer(model, group, group.last);
    const auto next = static_cast<int>(groups.size());
    if (first > last) fail("{}: its first layer '{}' comes after its last, '{}'", group.place, group.first, group.last);
    const std::string due = next < static_cast<int>(layers.size()) ? layers[next].name : "";
    if (first < next)
      fail("{}: '{}' is in group {} already; this group must begin with {}", group.place, group.first, groups[first],
           due.empty() ? "nothing: no layer is left" : "'" + due + "'");
    if (first > next) {
      for (const auto* later = &group + 1; later <= &strategy.groups().back(); ++later)
        if (model.find(later->first) == next)
          fail("{}: groups are listed in the model's order; that of '{}' ({}) comes before this one", group.place, due,
               later->place);
      fail("{}: '{}' would be in no group; this group must begin with it", group.place, due);
    }
    const int number = static_cast<int>(&group - strategy.groups().data());
    groups.resize(static_cast<std::size_t>(last) + 1, number);
  }
  if (strategy.groups().empty()) groups.resize(layers.size(), 0);
  if (groups.size() < layers.size())
    fail("{}: '{}' would be in no group; the last group ends with '{}'", strategy.groups().back().place,
         layers[groups.size()].name, layers.back().name);
  return groups;
}

ScheduleRequest request_of(const Strategy& strategy, int stages, int microbatches) {
  ScheduleRequest request;
  request.kind = strategy.schedule() == ScheduleKind::single ? ScheduleKind::one_f_one_b : strategy.schedule();
  request.stages = stages;
  request.microbatches = microbatches;
  request.groups_per_stage = strategy.groups_per_stage();
  request.filter_memory = kept_until_backward_filter;
  return request;
}

Schedule bind_schedule(const Strategy& strategy, const std::vector<int>& places, const GroupGraph& graph,
                       int microbatches, bool training, ScheduleCache& made) {
  const int stages = *std::max_element(places.begin(), places.end()) + 1;
  if (!training) {
    Schedule forwards{"forward", std::vector<std::vector<Action>>(static_cast<std::size_t>(stages))};
    for (int j = 0; j < microbatches; ++j)
      for (std::size_t group = 0; group < places.size(); ++group)
        forwards.stages[places[group]].push_back({Action::Kind::forward, static_cast<int>(group), j});
    return with_communication(forwards, graph, false);
  }
  if (strategy.schedule() == ScheduleKind::single && stages == 1) return single_stage(true);
  const ScheduleRequest request = request_of(strategy, stages, microbatches);
  if (strategy.groups().empty() && request.groups_per_stage > 1)  // stages = N has been placed by now
    fail("the schedule '{}' runs {} groups of layers per stage; name them in two or more [[group]] entries",
         name(request.kind), request.groups_per_stage);
  std::vector<std::vector<int>> replicas{places};
  if (request.kind == ScheduleKind::chimera) replicas.push_back(reversed_stages(places));
  return *made.of(request, graph, replicas);
}

void check_replica_grids(const Strategy& strategy) {
  const auto grids = strategy.grids();
  for (std::size_t s = 0; s < grids.size() / 2; ++s)
    if (const std::size_t other = grids.size() - 1 - s; grids[s].print() != grids[other].print())
      fail(
          "the schedule '{}' keeps the layers of stage {} on stage {} too, but their grids are \"{}\" and \"{}\"; give "
          "both the same grid",
          name(strategy.schedule()), s, other, grids[s].print(), grids[other].print());
}

std::vector<int> reversed_stages(std::vector<int> places) {
  const int last = *std::max_element(places.begin(), places.end());
  for (int& place : places) place = last - place;
  return places;
}

Layout same_placement(const Layout& layout, const Grid& grid) {
  Layout placed(layout.shape(), grid);
  for (int d = 0; d < layout.shape().dims(); ++d) {
    AxisList axes;
    for (const int axis : layout.axes(d))
      if (const int same = grid.find(layout.grid().name(axis)); same >= 0) axes.push_back(same);
    placed = placed.with(d, axes);
  }
  return placed;
}

}  // namespace partita
