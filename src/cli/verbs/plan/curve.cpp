#include "src/cli/verbs/plan/curve.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "src/cli/output/compared.hpp"
#include "src/cli/verbs/plan/files.hpp"
#include "src/cli/verbs/plan/reasons.hpp"
#include "src/cli/verbs/plan/search.hpp"

namespace partita::cli {

void plan_curve(const PlanOptions& options, const Model& model, const Workload& workload, const MachineFiles& files,
                const std::string& prefix) {
  const double alone = estimate(bind(model, Strategy(), workload), files.machine, files.times).seconds;
  print_machine(files, {});
  fmt::print("\n{:>7} {:<24} {:>10} {:>6} {:>10} {:>10} {:>10}  {}\n", "ranks", "file", "ms/step", "effic.",
             "samples/s", "MiB held", "MiB sent", "description");
  std::vector<std::string> notes;
  int planned = 0;
  for (const int ranks : options.rank_counts) {
    Search one;
    try {
      one = search(options, model, workload, files, ranks);
    } catch (const Error& error) {
      notes.push_back(fmt::format("{} ranks: {}", ranks, error.what()));
      continue;
    }
    ++planned;
    const auto names = write_strategies(fmt::format("{}-{}", prefix, ranks), one.found);
    const auto& [strategy, cost, choices] = one.found.front();
    fmt::print("{:>7} {:<24} {:>10.3f} {:>5.0f}% {:>10} {:>10.1f} {:>10.1f}  {}\n", ranks, names.front(),
               cost.seconds * 1e3, 100 * alone / cost.seconds / ranks, print_rate(cost.samples_per_second),
               static_cast<double>(cost.memory.total) / (1 << 20), cost.sent / (1 << 20), describe(model, strategy));
    for (const auto& note : one.notes) notes.push_back(fmt::format("{} ranks: {}", ranks, note));
  }
  if (planned == 0) fail("{}", fmt::join(notes, "; "));
  if (!notes.empty()) fmt::print("\n");
  for (const auto& note : notes) fmt::print("note     {}\n", note);
}

}  // namespace partita::cli
