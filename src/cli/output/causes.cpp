#include "src/cli/output/causes.hpp"

#include "partita/base/error.hpp"
#include "src/cli/output/plan_notes.hpp"
#include "src/model/operators.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace partita::cli {

namespace {

constexpr double least_share = 0.05;  // of the step
constexpr std::size_t most_causes = 4;

/// Batch normalization sums its statistics over all samples or, if each part of these has its own, the running ones.
enum class Sums : std::uint8_t { none, statistics, running_statistics };

Sums sums_of(const LayerPlan& layer) {
  const auto* norm = dynamic_cast<const BatchNormOperator*>(layer.op.get());
  if (norm == nullptr) return Sums::none;
  return norm->norm().statistics == Statistics::global ? Sums::statistics : Sums::running_statistics;
}

/// The seconds of all passes of a layer for so many microbatches.
PassCost step_of(const LayerCost& cost, int microbatches) {
  PassCost all = cost.forward;
  all += cost.backward_data;
  all += cost.backward_filter;
  return all * microbatches;
}

/// Adds what the layers of the stage with the most work spend on communication.
void add_layers(const Plan& plan, const Cost& cost, std::vector<Cause>& causes) {
  std::map<Sums, std::pair<int, double>> norms;  // layers and seconds
  for (std::size_t i = 0; i < cost.layers.size(); ++i) {
    const LayerPlan& layer = plan.layers[i];
    const int replica = plan.replica_on(layer.group, cost.stage);
    if (replica < 0) continue;
    PassCost step = step_of((replica == 0 ? cost.layers : cost.second_layers)[i], plan.microbatches_of(replica));
    if (const Sums sums = sums_of(layer); sums != Sums::none && step.collective > 0) {
      ++norms[sums].first;
      norms[sums].second += std::exchange(step.collective, 0);
    }
    for (const auto& [name, seconds] : {std::pair("halos", step.halo),
                                        {"redistributions", step.redistribution},
                                        {"products", step.product},
                                        {"collectives", step.collective}})
      causes.push_back({fmt::format("{} of {}", name, layer.name), seconds});
  }
  for (const auto& [sums, of] : norms)
    causes.push_back({fmt::format("{} of {}",
                                  sums == Sums::statistics ? "synchronized batch normalization"
                                                           : "running statistics of batch normalization",
                                  counted(of.first, "layer")),
                      of.second});
}

/// Adds the sums of gradients that nothing hides, with the layer whose sum is the longest.
void add_sums(const Plan& plan, const Cost& cost, std::vector<Cause>& causes) {
  const LayerPlan* last = nullptr;  // completes the bucket whose sum is the longest
  double longest = 0, all = 0;
  for (std::size_t i = 0; i < cost.layers.size(); ++i) {
    const double seconds = cost.layers[i].grad_reduce;
    if (plan.replica_on(plan.layers[i].group, cost.stage) < 0) continue;
    all += seconds;
    if (seconds > longest) last = &plan.layers[i];
    longest = std::max(longest, seconds);
  }
  if (last == nullptr) return;
  causes.push_back({fmt::format("sums of gradients ({:.0f} % of them in the bucket that {} completes)",
                                100 * longest / all, last->name),
                    cost.parts.grad_reduce});
}

}  // namespace

std::vector<Cause> large_causes(const Plan& plan, const Cost& cost) {
  std::vector<Cause> causes;
  add_layers(plan, cost, causes);
  add_sums(plan, cost, causes);
  if (const auto [idle, ranks] = idle_ranks(plan); idle > 0)
    causes.push_back({fmt::format("{} of {} without samples", idle, counted(ranks, "rank")),
                      cost.seconds * static_cast<double>(idle) / static_cast<double>(ranks)});
  if (plan.grids.size() > 1)
    causes.push_back({fmt::format("bubble of {} stages with {} microbatches", plan.grids.size(), plan.microbatches),
                      cost.parts.bubble});
  std::erase_if(causes, [&](const Cause& each) { return each.seconds < least_share * cost.seconds; });
  std::stable_sort(causes.begin(), causes.end(), [](const Cause& a, const Cause& b) { return a.seconds > b.seconds; });
  causes.resize(std::min(causes.size(), most_causes));
  return causes;
}

std::string print(const std::vector<Cause>& causes, double seconds) {
  std::string text;
  for (const Cause& each : causes)
    text += fmt::format("{}{} {:.3f} ms ({:.0f} %)", text.empty() ? "" : "; ", each.what, each.seconds * 1e3,
                        100 * each.seconds / seconds);
  return text;
}

}  // namespace partita::cli
