#include "src/cli/verbs/scale/predicted.hpp"
#include "partita/strategies/plan/bind.hpp"

#include "partita/strategies/cost/estimate.hpp"
#include "src/cli/inputs/settled.hpp"

namespace partita::cli {

std::optional<PredictedStep> predicted_step(const Model& model, const Strategy& strategy, const Options& options) {
  if (options.machine.empty()) return std::nullopt;
  const MachineFiles files = load_machine(options);
  const Plan plan = bind(model, settled(options, model, strategy, files).strategy, make_workload(options));
  const Cost cost = estimate(plan, files.machine, files.times);
  PredictedStep step{cost.seconds, 0, static_cast<int>(cost.layers.size())};
  for (const LayerCost& layer : cost.layers) step.measured_layers += layer.measured ? 1 : 0;
  return step;
}

}  // namespace partita::cli
