// A strategy that can be read prints as text that reads back the same. Binding it to a model gives a plan or an Error.
#include "partita/base/error.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/traffic.hpp"

#include <cstdlib>

using namespace partita;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const Strategy strategy = Strategy::parse({reinterpret_cast<const char*>(data), size}, "fuzzed.toml");
    if (Strategy::parse(strategy.print(), "printed.toml").print() != strategy.print()) std::abort();
    constexpr int enough = 64;  // larger grids take time but no other code paths
    if (strategy.grid().size() > enough) return 0;
    for (const auto& grid : strategy.grids())
      if (grid.size() > enough) return 0;
    static_cast<void>(rank_traffic(bind(fashion_cnn(), strategy, {.batch = 3, .optimizer = {}}), 0));
  } catch (const Error&) {
  }
  return 0;
}
