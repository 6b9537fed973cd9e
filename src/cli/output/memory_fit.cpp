#include "src/cli/output/memory_fit.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/plan/memory.hpp"

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

namespace {

Index most_of_any_rank(const Plan& plan, const std::function<MemoryPeak(int rank)>& peak_of) {
  Index most = 0;
  for (int rank = 0; rank < plan.ranks(); ++rank) most = std::max(most, peak_of(rank).total);
  return most;
}

}  // namespace

void check_fits(const Plan& plan, const Model& model, const Strategy& strategy, const MachineFiles& files,
                Index limit) {
  check_fits(plan, model, strategy, files, limit, [&](int rank) { return peak_memory(plan, rank); });
}

void check_fits(const Plan& plan, const Model& model, const Strategy& strategy, const MachineFiles& files, Index limit,
                const std::function<MemoryPeak(int rank)>& peak_of) {
  try {
    check_memory(plan, limit, peak_of);
  } catch (const Error& error) {
    constexpr std::size_t most = 3;
    // Remedies change a step. What a run holds beyond a step, such as its data, stays.
    const Index beyond =
        most_of_any_rank(plan, peak_of) - most_of_any_rank(plan, [&](int rank) { return peak_memory(plan, rank); });
    const Index left = std::max<Index>(limit - std::max<Index>(beyond, 0), 1);
    fail("{}; {}", error.what(),
         print(remedies(model, strategy, plan.workload, files.machine, files.times, left), most, " ", "; "));
  }
}

}  // namespace partita::cli
