// Measures on one core how fast the cost model prices plans: a strategy that must be bound first, a bound plan, and a
// bound plan again after the machine's constants have changed.
//   build/bench/estimate
#include "partita/strategies/cost/estimate.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/cost/cost_formula.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "src/system/clock.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

using namespace partita;

namespace {

/// Prints and returns the median seconds of a call, from nine rounds of 0.1 s. `whole` is the time of binding and
/// pricing, which the ratio refers to; 0 if `call` is binding and pricing.
double measure(const std::string& what, double whole, const std::function<void()>& call) {
  std::vector<double> rounds;
  for (int round = 0; round < 9; ++round) {
    int calls = 0;
    const double start = now();
    for (; now() - start < 0.1; ++calls) call();
    rounds.push_back((now() - start) / calls);
  }
  std::sort(rounds.begin(), rounds.end());
  fmt::print(
      R"({{"subject": "estimate", "case": "{}", "ranks": 1, "seconds": {:.3e}, "spread": {:.3f}, "per_second": {:.0f}, "ratio": {:.3g}, "against": "binding and pricing"}})"
      "\n",
      what, rounds[4], (rounds[6] - rounds[2]) / rounds[4], 1 / rounds[4], whole > 0 ? whole / rounds[4] : 1.0);
  return rounds[4];
}

}  // namespace

int main() {
  const Model model = builtin_model("resnet50", {});
  Strategy strategy("data=4 y=2");
  strategy.layer("*", {.output = "N@data H@y"});
  const Workload workload{.batch = 32, .optimizer = {}};
  Machine machine = default_machine();
  const Plan plan = bind(model, strategy, workload);
  const CostFormula formula(plan, machine);
  double sum = 0;                           // uses every result, so that the compiler removes no call
  auto change = [&, calls = 0]() mutable {  // so that no result can be reused for the next price
    calls = (calls + 1) % 1000;
    machine.levels[0].latency.value = 1.5e-6 * (1 + 1e-3 * calls);
    machine.levels[0].bandwidth.value = 4e9 * (1 - 5e-4 * calls);
  };
  const double whole = measure("bind", 0, [&] {
    const Plan fresh = bind(model, strategy, workload);
    sum += CostFormula(fresh, machine).step(machine).seconds;
  });
  measure("bind alone", whole, [&] { sum += bind(model, strategy, workload).microbatches; });
  measure("compile", whole, [&] { sum += CostFormula(plan, machine).step(machine).seconds; });
  measure("estimate", whole, [&] { sum += estimate(plan, machine).seconds; });
  measure("reprice", whole, [&] {
    change();
    sum += formula.step(machine).seconds;
  });
  return sum > 0 ? 0 : 1;
}
