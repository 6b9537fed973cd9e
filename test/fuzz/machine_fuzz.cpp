// A machine file that can be read prints as text that reads back the same, and its curves give numbers; otherwise there
// is an Error.
#include "partita/base/error.hpp"
#include "partita/strategies/machine/machine.hpp"

#include <cmath>
#include <cstdint>
#include <cstdlib>

using namespace partita;

namespace {

void check(const Curve& curve) {
  for (const double size : {0., 1., 1e6, 1e30})
    if (!(curve.at(size) > 0) || !std::isfinite(curve.seconds(size))) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const Machine machine = Machine::parse({reinterpret_cast<const char*>(data), size}, "fuzzed.toml");
    Machine again;
    try {
      again = Machine::parse(machine.print(), "printed.toml");
    } catch (const Error&) {
      std::abort();
    }
    if (again.print() != machine.print()) std::abort();
    for (const auto& [kernels, efficiency] : machine.efficiency) {
      check(efficiency.curve);
      for (const auto& [type, curve] : efficiency.of_type) check(curve);
    }
    for (const auto& level : machine.levels)
      for (const auto& [of, curve] : level.verbs) check(curve);
    const int last = static_cast<int>(machine.levels.size()) - 1;
    for (const int other : {0, 1, 7, 1 << 20})
      if (const int level = machine.level_of(3, other); level < 0 || level > last) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
