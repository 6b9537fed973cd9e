// A schedule in CSV that can be read prints as text that reads back the same. If it passes the checks it is simulated;
// otherwise there is an Error.
#include "partita/base/error.hpp"
#include "partita/strategies/schedule/timeline.hpp"
#include "partita/strategies/schedule/validate.hpp"

#include <cstdlib>

using namespace partita;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const Schedule schedule = parse_csv({reinterpret_cast<const char*>(data), size}, "fuzzed.csv");
    if (parse_csv(print_csv(schedule), "printed.csv").stages != schedule.stages) std::abort();
    const GroupGraph graph(schedule.groups());
    check_schedule(schedule, graph, true);
    static_cast<void>(draw_timeline(simulate(schedule, graph, equal_times(graph.groups(), 1, {}, 0.5)), 80));
  } catch (const Error&) {
  }
  return 0;
}
