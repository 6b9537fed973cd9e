#include "strategies/plan/known_layouts.hpp"

#include <utility>

namespace partita {

namespace {

/// Equal for requests that differ in the first rank of their grid alone.
std::size_t hash_of(int like, const LayoutRequest& request) {
  auto hash = static_cast<std::size_t>(like);
  const auto mix = [&](std::size_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15U; };  // Fibonacci hashing
  const auto mix_layout = [&](const Layout& layout) {
    for (int d = 0; d < layout.shape().dims(); ++d) mix(layout.sharding(d));
  };
  const Grid& grid = request.output.grid();
  for (int axis = 0; axis < grid.axes(); ++axis) mix(static_cast<std::size_t>(grid.extent(axis)));
  mix(static_cast<std::size_t>(request.output.shape().extent(0)));
  mix_layout(request.output);
  for (const Layout& each : request.arriving) mix_layout(each);
  if (request.weights) mix_layout(*request.weights);
  for (const Algorithm each : request.algorithms) mix(static_cast<std::size_t>(each));
  return hash;
}

}  // namespace

OperatorLayouts KnownLayouts::of(const Operator& op, int like, const LayoutRequest& request) {
  if (op.algorithms().empty()) return op.layouts(request);
  if (count_ == most) {  // a search seldom returns to what it left long ago
    known_.clear();
    count_ = 0;
  }
  const Grid& grid = request.output.grid();
  auto& candidates = known_[hash_of(like, request)];
  for (const Known& each : candidates) {
    if (each.like != like) continue;
    if (each.request == request) return each.layouts;
    const Grid& other = each.request.output.grid();
    if (!(other == grid) && other.same_axes(grid) && each.request.on(grid) == request) return each.layouts.on(grid);
  }
  OperatorLayouts layouts = op.layouts(request);
  ++count_;
  return candidates.emplace_back(Known{like, request, std::move(layouts)}).layouts;
}

}  // namespace partita
