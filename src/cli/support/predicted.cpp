#include "src/cli/support/predicted.hpp"
#include "partita/strategies/plan/bind.hpp"

#include "partita/strategies/cost/estimate.hpp"
#include "src/cli/support/machine_files.hpp"

namespace partita::cli {

std::optional<double> predicted_seconds(const Model& model, const Strategy& strategy, const Options& options) {
  if (options.machine.empty()) return std::nullopt;
  const MachineFiles files = load_machine(options);
  const Plan plan = bind(model, with_stages_placed(options, model, strategy, files), make_workload(options));
  return estimate(plan, files.machine, files.times).seconds;
}

}  // namespace partita::cli
