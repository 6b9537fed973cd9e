#include "src/cli/support/unfit.hpp"
#include "partita/strategies/plan/memory.hpp"

#include "partita/base/error.hpp"

#include <algorithm>

namespace partita::cli {

std::string print(const Holding& held, Index limit) {
  return fmt::format("rank {} holds {} ({}), {} more than the limit of {}; the largest part is {}", held.rank,
                     print_bytes(held.memory.total), held.memory.each.print(), print_bytes(held.missing),
                     print_bytes(limit), name(held.most));
}

std::string print(const std::vector<Remedy>& remedies, std::size_t most, const char* before, const char* between) {
  if (remedies.empty()) return "no change that was tried needs less memory";
  const bool fits = remedies.front().missing == 0;
  std::string text = fits ? "it would fit with" : "no change that was tried makes it fit; the closest are";
  for (std::size_t i = 0; i < std::min(most, remedies.size()); ++i) {
    const Remedy& each = remedies[i];
    if (fits && each.missing > 0) break;
    text += fmt::format("{}{}: ", i == 0 ? before : between, each.change);
    const double speed = static_cast<double>(each.batch) / each.seconds;
    text += fits ? fmt::format("{} per rank on {}, {:.{}f} samples/s", print_bytes(each.held),
                               counted(each.ranks, "rank"), speed, speed < 10 ? 2 : 0)
                 : fmt::format("{} above the limit", print_bytes(each.missing));
  }
  return text;
}

void check_fits(const Plan& plan, const Model& model, const Strategy& strategy, const MachineFiles& files,
                Index limit) {
  try {
    check_memory(plan, limit);
  } catch (const Error& error) {
    constexpr std::size_t most = 3;
    fail("{}; {}", error.what(),
         print(remedies(model, strategy, plan.workload, files.machine, files.times, limit), most, " ", "; "));
  }
}

}  // namespace partita::cli
