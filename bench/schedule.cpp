// Measures on one core how long it takes to generate, validate and simulate a schedule of 32 stages and 256
// microbatches. `ratio` is the allowed time (0.1 s for closed forms, 1 s for heuristics) divided by the measured time.
//   build/bench/schedule
#include "partita/strategies/schedule/generators.hpp"
#include "partita/strategies/schedule/validate.hpp"
#include "src/system/clock.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

using namespace partita;

namespace {

double seconds_of(const ScheduleRequest& request) {
  const double start = now();
  const Schedule schedule = generate(request);
  const GroupGraph graph(schedule.groups());
  check_schedule(schedule, graph, true);
  static_cast<void>(
      simulate(schedule, graph, equal_times(graph.groups(), graph.groups() / request.stages, request.times, 0)));
  return now() - start;
}

}  // namespace

int main() {
  for (const ScheduleKind kind : pipeline_kinds()) {
    ScheduleRequest request;
    request.kind = kind;
    request.stages = 32;
    request.microbatches = 256;
    request.times = {1, 1.1, 0.8};
    std::vector<double> runs;
    for (int i = 0; i < 7; ++i) runs.push_back(seconds_of(request));
    std::sort(runs.begin(), runs.end());
    const bool heuristic = kind == ScheduleKind::zb_1p || kind == ScheduleKind::zb_2p || kind == ScheduleKind::zb_v;
    fmt::print(
        "{{\"subject\": \"schedule\", \"case\": \"{}\", \"ranks\": 1, \"seconds\": {:.4g}, \"spread\": {:.2f}, "
        "\"ratio\": {:.3g}, \"against\": \"limit\"}}\n",
        name(kind), runs[3], (runs[5] - runs[1]) / runs[3], (heuristic ? 1.0 : 0.1) / runs[3]);
  }
  return 0;
}
