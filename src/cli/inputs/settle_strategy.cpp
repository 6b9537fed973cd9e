#include "src/cli/inputs/settle_strategy.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/planner/stage_partition.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace partita::cli {

namespace {

std::string print_rule(const LayerRule& rule) {
  std::string text;
  if (rule.weights) text = fmt::format("weights \"{}\"", *rule.weights);
  if (rule.algorithm) text += fmt::format("{}algorithm \"{}\"", text.empty() ? "" : " and ", rule.algorithm->text());
  return text;
}

std::string print_seconds(const std::vector<ProductChoice>& choices) {
  return fmt::format("a step takes {:.3f} ms, not {:.3f} ms,", choices.back().after * 1e3,
                     choices.front().before * 1e3);
}

}  // namespace

Settled settle_strategy(const Options& options, const Model& model, const Strategy& strategy,
                        const MachineFiles& files) {
  return settle_strategy(options, model, strategy, make_workload(options), files.machine, files.times);
}

Settled settle_strategy(const Options& options, const Model& model, const Strategy& strategy, const Workload& workload,
                        const Machine& machine, const KernelTimes& times) {
  const Index limit = limit_of(options, machine);
  const Strategy placed = place_stages_nearest(model, strategy, workload, machine, times, limit);
  if (options.machine.empty()) return {placed, {}};
  auto [chosen, choices] = choose_products(model, placed, workload, machine, times, limit);
  return {std::move(chosen), std::move(choices)};
}

std::string print_choices(const std::vector<ProductChoice>& choices) {
  struct Alike {
    std::string rule;
    std::vector<std::string> layers;
    double saved = 0;
  };
  std::vector<Alike> all;
  for (const ProductChoice& choice : choices) {
    const std::string rule = print_rule(choice.rule);
    for (Alike& each : all)  // a later choice replaces an earlier one of the same layers
      std::erase_if(each.layers, [&](const std::string& layer) {
        return std::find(choice.layers.begin(), choice.layers.end(), layer) != choice.layers.end();
      });
    auto found = std::find_if(all.begin(), all.end(), [&](const Alike& each) { return each.rule == rule; });
    if (found == all.end()) found = all.insert(found, {rule, {}, 0});
    found->layers.insert(found->layers.end(), choice.layers.begin(), choice.layers.end());
    found->saved += choice.before - choice.after;
  }
  std::vector<std::string> texts;
  for (const Alike& each : all)
    if (!each.layers.empty())
      texts.push_back(fmt::format("{} of {} (-{:.3f} ms)", each.rule.empty() ? "no rule" : each.rule,
                                  fmt::join(each.layers, ", "), each.saved * 1e3));
  return fmt::to_string(fmt::join(texts, "; "));
}

std::string choice_note(const std::vector<ProductChoice>& choices) {
  return choices.empty() ? "" : fmt::format("{} with {}", print_seconds(choices), print_choices(choices));
}

std::string short_choice_note(const std::vector<ProductChoice>& choices) {
  if (choices.empty()) return "";
  std::size_t layers = 0;
  for (const ProductChoice& choice : choices) layers += choice.layers.size();
  return fmt::format("{} as {} {}", print_seconds(choices), counted(static_cast<std::int64_t>(layers), "layer"),
                     layers == 1 ? "runs in another way" : "run in other ways");
}

}  // namespace partita::cli
