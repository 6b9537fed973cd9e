// How fast plans are priced, on one core: a bound plan again, and from layouts.
#include "partita/model/builtin.hpp"
#include "partita/strategies/cost_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

using namespace partita;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Median seconds of a call, of nine rounds of 0.1 s.
void measure(const std::string& what, const std::function<void()>& call) {
  std::vector<double> rounds;
  for (int round = 0; round < 9; ++round) {
    int calls = 0;
    const double start = now();
    for (; now() - start < 0.1; ++calls) call();
    rounds.push_back((now() - start) / calls);
  }
  std::sort(rounds.begin(), rounds.end());
  fmt::print(R"({{"subject": "estimate", "case": "{}", "seconds": {:.3e}, "spread": {:.3f}, "per_second": {:.0f}}})"
             "\n",
             what, rounds[4], (rounds[6] - rounds[2]) / rounds[4], 1 / rounds[4]);
}

}  // namespace

int main() {
  const Model model = builtin_model("resnet50", {});
  Strategy strategy("data=4 y=2");
  strategy.layer("*", {.output = "N@data H@y"});
  const Workload workload{.batch = 32, .optimizer = {}};
  const Machine machine = default_machine();
  const Plan plan = bind(model, strategy, workload);
  measure("bind", [&] { bind(model, strategy, workload); });
  measure("estimate", [&] { estimate(plan, machine); });
  return 0;
}
