#include "partita/layouts/interior.hpp"

namespace partita {

namespace {

constexpr int first_spatial = 2;  // after N and C

/// Returns the longest run of `range` in which `holds` is true. A single run is needed because outputs that read only
/// padding fulfil the condition too, even if outputs between them and the interior do not.
template <class Holds>
Interval longest_run(Interval range, Holds&& holds) {
  Interval best{range.lo, range.lo}, now = best;
  for (Index i = range.lo; i < range.hi; ++i) {
    now = holds(i) ? Interval{now.lo, i + 1} : Interval{i + 1, i + 1};
    if (now.extent() > best.extent()) best = now;
  }
  return best;
}

}  // namespace

Box interior_of(std::span<const Window> windows, const Box& own, const Box& needed, const Box& y) {
  Box inside = y;
  for (int d = first_spatial; d < y.dims(); ++d)
    inside[d] = longest_run(y[d], [&](Index o) {
      const auto& window = windows[d - first_spatial];
      const Interval in = window.inputs_of({o, o + 1}, needed[d]);
      return in.empty() || (in.lo >= own[d].lo && in.hi <= own[d].hi);
    });
  return inside;
}

bool worth_overlap(const Box& inside, const Box& y) { return !(inside == y) && 2 * inside.volume() > y.volume(); }

std::vector<Border> recomputed_borders(std::span<const Window> windows, const Box& own, const Box& needed,
                                       const Box& y) {
  const Box inside = interior_of(windows, own, needed, y);
  std::vector<Border> borders;
  if (!worth_overlap(inside, y)) return borders;
  for (const Box& outputs : subtract(y, inside)) borders.push_back({outputs, inputs_of(windows, outputs, needed)});
  return borders;
}

}  // namespace partita
