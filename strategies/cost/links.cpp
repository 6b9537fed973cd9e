#include "strategies/cost/links.hpp"

#include <algorithm>
#include <cstdlib>

namespace partita {

Link links_of_level(const Machine& machine, int level, double concurrent) {
  const double unit = level == 0 ? 1 : machine.levels[static_cast<std::size_t>(level - 1)].ranks.value;
  return {level, std::min(concurrent, unit)};
}

Link links_of(const Machine& machine, int from, int to) {
  return links_of_level(machine, machine.level_of(from, to), std::max(1, std::abs(to - from)));
}

}  // namespace partita
