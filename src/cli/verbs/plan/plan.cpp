#include "partita/base/error.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "src/cli/inputs/model_and_strategy.hpp"
#include "src/cli/inputs/rank_patterns.hpp"
#include "src/cli/options/number_option.hpp"
#include "src/cli/output/causes.hpp"
#include "src/cli/output/compared.hpp"
#include "src/cli/verbs/plan/curve.hpp"
#include "src/cli/verbs/plan/files.hpp"
#include "src/cli/verbs/plan/plan_options.hpp"
#include "src/cli/verbs/plan/reasons.hpp"
#include "src/cli/verbs/plan/search.hpp"
#include "src/model/operators.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace partita::cli {

namespace {

namespace po = boost::program_options;

po::options_description plan_options(PlanOptions& o) {
  po::options_description group("Plan");
  auto add = group.add_options();
  add("ranks", number(&o.rank_counts)->multitoken()->required()->value_name("N..."),
      "number of ranks to plan for; several numbers, ascending, give a line for the best strategy on each");
  add("best", number(&o.best)->default_value(o.best)->value_name("K"), "number of strategies to write");
  add("examine", number(&o.examined)->default_value(o.examined)->value_name("N"),
      "number of candidates to bind and price exactly; a rough estimate ranks the others");
  add("out", po::value(&o.out)->value_name("PREFIX"),
      "write the strategies to PREFIX-1.toml (the best) to PREFIX-K.toml, or with several numbers of ranks to "
      "PREFIX-RANKS-1.toml and so on, and replace older files; default: plan, without replacing any file");
  add("kinds", po::value(&o.kinds)->multitoken()->value_name("KIND..."),
      "pipeline schedules to try (default 1f1b zb-h1 chimera); \"none\": only strategies of one stage");
  add("keep-batch-norm", po::bool_switch(&o.keep_batch_norm),
      "find only strategies whose batch normalization computes its statistics over the whole batch, as on one rank: "
      "those with one microbatch, if the model has any");
  add("time-limit", number(&o.time_limit)->default_value(0, "none")->value_name("SECONDS"),
      "end the search after this time with the best that was found, and say what was left out");
  add("why-not", po::value(&o.why_not)->composing()->value_name("RULE"),
      "also print what the best strategy would cost with this rule added, e.g. \"conv1: N C\"; may be repeated");
  return group;
}

void check_plan(const PlanOptions& o) {
  check_rank_counts(o.rank_counts);
  if (!(o.time_limit >= 0)) fail("--time-limit {}: it must be 0 (none) or more seconds", o.time_limit);
  if (o.rank_counts.size() > 1 && !o.why_not.empty())
    fail("--why-not prices one strategy, so it needs one number of --ranks");
  if (o.kinds.size() > 1 && std::count(o.kinds.begin(), o.kinds.end(), "none") > 0)
    fail("--kinds {}: \"none\" means one stage and cannot be combined with other kinds", fmt::join(o.kinds, " "));
}

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
void check_keep_batch_norm(const PlanOptions& options, const Model& model) {
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

int plan(const PlanOptions& options, const ModelFactory& factory) {
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

class PlanCommand final : public ModelCommand<PlanOptions> {
 public:
  using ModelCommand::ModelCommand;
  void add_options(po::options_description& all) override {
    add_priced(all, options_, program_, {.strategy = false});  // it searches for one
    all.add(plan_options(options_));
  }
  void check(const CommandLine& line) override {
    settle(options_, program_, line);
    check_plan(options_);
  }
  int run(Communicator*) const override { return plan(options_, program_.model); }
};

}  // namespace

extern const VerbEntry plan_verb{
    "plan", "searches for the fastest strategies for a number of ranks and writes them to files",
    "{0} plan --model resnet50 --ranks 16 --machine cluster.toml --out best", make<PlanCommand>};

}  // namespace partita::cli
