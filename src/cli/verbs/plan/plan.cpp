#include "src/cli/verbs/plan/plan.hpp"

#include "partita/base/error.hpp"
#include "partita/model/operators.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "src/cli/support/causes.hpp"
#include "src/cli/support/compared.hpp"
#include "src/cli/verbs/plan/curve.hpp"
#include "src/cli/verbs/plan/files.hpp"
#include "src/cli/verbs/plan/reasons.hpp"
#include "src/cli/verbs/plan/search.hpp"

#include <algorithm>

namespace partita::cli {

namespace {

/// Checks the rules of --why-not as far as that is possible before the axes of the best strategy are known.
void check_why_not(const std::vector<std::string>& rules, const Model& model) {
  Strategy strategy;
  add_rules(strategy, rules, "--why-not");
  for (const auto& rule : strategy.rules())
    if (std::none_of(model.layers().begin(), model.layers().end(),
                     [&](const Layer& l) { return rule.matches(l.name); }))
      fail("{}: no layer of the model '{}' is called '{}'", rule.place, model.name(), rule.match);
}

/// Prints what a step of the best strategy costs with one more rule, and what changes.
void print_why_not(const std::string& rule, const Planned& best, const Model& model, const Workload& workload,
                   const MachineFiles& files) {
  Strategy strategy = best.strategy;
  add_rules(strategy, {rule}, "--why-not");
  Plan with_rule;
  try {
    with_rule = bind(model, strategy, workload);
  } catch (const Error& error) {  // the axes were not known earlier
    fmt::print("\n\"{}\" cannot be added to the best strategy: {}\n", rule, error.what());
    return;
  }
  const Cost cost = estimate(with_rule, files.machine, files.times);
  fmt::print("\nwith \"{}\" a step takes {:.3f} ms, {}\n", rule, cost.seconds * 1e3, difference(cost, best.cost));
}

/// Statistics over a part of the samples change with the strategy, whatever the planner finds.
void check_keep_batch_norm(const Options& options, const Model& model) {
  if (!options.keep_batch_norm) return;
  for (const Layer& layer : model.layers()) {
    const auto* norm = dynamic_cast<const BatchNormOperator*>(layer.op.get());
    if (norm != nullptr && norm->norm().statistics != Statistics::global)
      fail(
          "--keep-batch-norm: layer '{}' computes its statistics over a part of the samples, which every strategy "
          "divides in its own way; leave one of them out, or give --batch-norm synchronized",
          layer.name);
  }
}

void print_found(const std::vector<Planned>& found, const std::vector<std::string>& names, const Model& model) {
  fmt::print("\n{:<24} {:>10} {:>10} {:>10} {:>10}  {}\n", "file", "ms/step", "samples/s", "MiB held", "MiB sent",
             "description");
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& [strategy, cost, choices] = found[i];
    fmt::print("{:<24} {:>10.3f} {:>10} {:>10.1f} {:>10.1f}  {}\n", names[i], cost.seconds * 1e3,
               print_rate(cost.samples_per_second), static_cast<double>(cost.memory.total) / (1 << 20),
               cost.sent / (1 << 20), describe(model, strategy));
  }
}

/// Prints the single causes that cost much in each strategy.
void print_causes(const std::vector<Planned>& found, const std::vector<std::string>& names, const Model& model,
                  const Workload& workload) {
  std::string text;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& [strategy, cost, choices] = found[i];
    if (const auto causes = large_causes(bind(model, strategy, workload), cost); !causes.empty())
      text += fmt::format("{:<24} {}\n", names[i], print(causes, cost.seconds));
  }
  if (!text.empty()) fmt::print("\nwhat takes 5 % of a step or more, beside computing\n{}", text);
}

}  // namespace

int plan(const Options& options, const ModelFactory& factory) {
  const MachineFiles files = load_machine(options);
  const Model model = make_model(options, factory);
  const Workload workload{options.trainer.batch, options.trainer.dtype, true, options.trainer.optimizer};
  check_why_not(options.why_not, model);
  check_keep_batch_norm(options, model);
  check_files(options);
  if (options.rank_counts.size() > 1) {
    plan_curve(options, model, workload, files, plan_prefix(options));
    return 0;
  }
  const int ranks = options.rank_counts.front();
  const Search searched = search(options, model, workload, files, ranks);
  const auto& found = searched.found;
  print_machine(files, searched.notes);
  const auto names = write_strategies(plan_prefix(options), found);
  print_found(found, names, model);
  print_causes(found, names, model, workload);
  print_reasons(searched, names, model, workload, files, ranks, limit_of(options, files.machine));
  for (const auto& rule : options.why_not) print_why_not(rule, found.front(), model, workload, files);
  return 0;
}

}  // namespace partita::cli
