#include "src/model/operators.hpp"
#include "src/model/rules.hpp"

#include <fmt/ranges.h>

namespace partita {

std::string BatchNormOperator::describe() const {
  const auto statistics = [&]() -> std::string {
    switch (norm_.statistics) {
      case Statistics::global: return "global statistics";
      case Statistics::local: return "local statistics";
      case Statistics::along: return fmt::format("statistics along ({})", fmt::join(norm_.axes, ","));
      case Statistics::ranks: return fmt::format("statistics of {} ranks", norm_.ranks);
    }
    broken("unknown statistics");
  }();
  return fmt::format("epsilon {:g} momentum {:g} {}", norm_.epsilon, norm_.momentum, statistics);
}

Shape BatchNormOperator::output(std::span<const Shape> inputs) const {
  if (!(norm_.epsilon > 0)) fail("epsilon is {}; it must be more than 0", norm_.epsilon);
  if (norm_.ranks < 1) fail("its statistics are computed among {} ranks; it must be 1 or more", norm_.ranks);
  if (!(norm_.momentum >= 0 && norm_.momentum <= 1)) fail("momentum is {}; it must be in [0, 1]", norm_.momentum);
  static_cast<void>(inputs[0]['C']);
  return inputs[0];
}

std::vector<WeightSpec> BatchNormOperator::weights(std::span<const Shape> inputs) const {
  const Shape channels{{'C', inputs[0]['C']}};
  return {{.name = "scale", .shape = channels, .init = Init::ones, .decay = false},
          {.name = "shift", .shape = channels, .init = Init::zeros, .decay = false},
          {.name = "running_mean", .shape = channels, .init = Init::zeros, .decay = false, .trained = false},
          {.name = "running_variance", .shape = channels, .init = Init::ones, .decay = false, .trained = false}};
}

// Three statistics for each channel; in backward two sums. An evaluation takes no sums.
HeldNumbers BatchNormOperator::numbers(const Layout& x, int rank, bool training) const {
  const Index channels = x.owned(rank).extent(1);
  if (!training) return {.forward = 3 * channels, .backward = 0, .work = 0};
  // Two sums and four moments, if ranks add them; or what replicas of the running statistics add up.
  const Index work = statistics_axes(x) != 0 ? 6 : sample_axes(x) != 0 ? 2 : 0;
  return {.forward = 3 * channels, .backward = 2 * channels, .work = work * channels};
}

namespace {

/// Returns the last of these axes that have `ranks` ranks together, or all of them if they have no more.
AxisSet last_axes(const Grid& grid, AxisSet all, int ranks) {
  if (grid.group_size(all) <= ranks) return all;
  std::string possible;
  AxisSet axes = 0;
  int together = 1;
  for (int axis = grid.axes() - 1; axis >= 0; --axis) {
    if (together == ranks) return axes;
    if ((all >> axis & 1U) == 0 || grid.extent(axis) == 1) continue;
    axes |= AxisSet{1} << axis;
    together *= grid.extent(axis);
    possible += fmt::format("{}{}", possible.empty() ? "" : ", ", together);
  }
  if (together == ranks) return axes;
  fail(
      "its statistics are computed among groups of {} ranks, but the last axes of the grid \"{}\" over which samples "
      "are sharded have {} ranks together; take one of these numbers, or divide an axis in two",
      ranks, grid.print(), possible);
}

}  // namespace

AxisSet BatchNormOperator::statistics_axes(const Layout& x) const {
  const AxisSet all = sample_axes(x);
  if (norm_.statistics == Statistics::ranks) return last_axes(x.grid(), all, norm_.ranks);
  if (norm_.statistics != Statistics::along) return norm_.statistics == Statistics::global ? all : 0;
  AxisSet axes = 0;
  for (const auto& name : norm_.axes) {
    const int axis = x.grid().find(name);
    if (axis < 0 && x.grid().size() > 1)
      fail("its statistics are computed along axis '{}', which the grid \"{}\" does not have{}", name, x.grid().print(),
           did_you_mean(name, x.grid().names()));
    if (axis >= 0) axes |= AxisSet{1} << axis;
  }
  return axes & all;
}

// mean[C@b] = sum over a, c of x[N@a C@b H@c] / count. The sums that the backward pass needs are already summed over
// the statistics axes, so the gradients of scale and shift are not partial over these. They are partial over the other
// axes that shard x.
OperatorLayouts BatchNormOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  const Layout x = basis(request);
  const Layout channels = x.onto(Shape{{'C', x.shape()['C']}});
  if (request.weights && !(*request.weights == channels))
    fail("weights \"{}\": scale and shift always have the layout of its input's channels, \"{}\"; omit `weights`",
         request.weights->print(), channels.print());
  const AxisSet all = sample_axes(x), axes = statistics_axes(x);
  const Layout gradient = channels.with_partial(all & ~axes);
  OperatorLayouts layouts{.x = {x},
                          .y = x,
                          .dx = {x},
                          .w = {channels, channels, channels, channels},
                          .dw = {gradient, gradient, channels, channels}};
  if (!request.training) return layouts;
  layouts.collectives.reserve(3);
  const auto add = [&](Collective::When when, std::string role, AxisSet over, Index numbers) {
    if (over != 0) layouts.collectives.push_back({when, std::move(role), over, channels, numbers});
  };
  add(Collective::When::forward, "statistics forward", axes, 4);
  if (axes != all) add(Collective::When::forward, "running statistics", all, 2);
  add(Collective::When::backward, "statistics backward", axes, 2);
  return layouts;
}

}  // namespace partita
