#include "src/cli/verbs/plan/plan.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/planner/choose_products.hpp"
#include "partita/strategies/planner/memory_remedies.hpp"
#include "partita/strategies/planner/planner.hpp"
#include "partita/strategies/planner/short_rules.hpp"
#include "partita/strategies/schedule/generators.hpp"
#include "src/cli/support/compared.hpp"
#include "src/cli/support/option_values.hpp"
#include "src/cli/support/plain_axes.hpp"
#include "src/cli/support/text_file.hpp"
#include "src/cli/support/unfit.hpp"
#include "src/cli/verbs/plan/reasons.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <system_error>

namespace partita::cli {

namespace {

constexpr const char* default_prefix = "plan";

std::string file_name(const std::string& prefix, int number) { return fmt::format("{}-{}.toml", prefix, number); }

/// Throws Error if a file of the default prefix exists: the user did not name the files that would be replaced.
void check_free(int best) {
  constexpr int most = 1000;  // larger numbers are refused later
  for (int i = 1; i <= std::min(best, most); ++i)
    if (std::error_code error; std::filesystem::exists(file_name(default_prefix, i), error))
      fail("{} exists; give another prefix with --out PREFIX, or replace it with --out {}",
           file_name(default_prefix, i), default_prefix);
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

/// Some of the layout patterns that the search left out, with the reasons; "" if it left out none. The text gives no
/// number, because the search does not reach every grid on which such a pattern would be left out.
std::string left_out_text(const std::vector<LeftOut>& patterns, std::string_view separator) {
  if (patterns.empty()) return "";
  constexpr std::size_t most = 3;
  std::string text =
      fmt::format("not searched, because a layer cannot run this way{}", patterns.size() > most ? ", for example" : "");
  for (std::size_t i = 0; i < std::min(most, patterns.size()); ++i)
    text += fmt::format("{}\"{}\" on \"{}\": {}", separator, patterns[i].pattern, patterns[i].grid, patterns[i].why);
  return text;
}

/// A line on the terminal that counts candidates. The destructor ends the line, since a search may stop early, throw,
/// or examine more candidates than it announced.
class CountingLine {
 public:
  CountingLine() = default;
  CountingLine(const CountingLine&) = delete;
  CountingLine& operator=(const CountingLine&) = delete;
  ~CountingLine() {
    if (begun_) std::fputs("\n", stderr);
  }
  void show(int done, int all) {
    fmt::print(stderr, "\r{} of {} candidates examined", done, all);
    begun_ = true;
  }

 private:
  bool begun_ = false;
};

/// Returns the strategies that the planner finds within `limit` bytes per rank; 0 for no limit. If none fits, throws
/// the planner's Error and adds which changes would make the smallest strategy fit.
std::vector<Planned> search(const Model& model, const Workload& workload, const MachineFiles& files,
                            PlannerOptions options, Index limit) {
  CountingLine line;
  if (isatty(STDERR_FILENO) != 0) options.progress = [&](int done, int all) { line.show(done, all); };
  options.memory_limit = limit > 0 ? limit : std::numeric_limits<Index>::max();
  try {
    return plan_strategies(model, workload, files.machine, files.times, options);
  } catch (const NothingFits& error) {
    constexpr std::size_t most = 3;
    const Strategy& strategy = error.smallest.strategy;
    fail("{}; the strategy that needs least is {}: {}", error.what(), describe(model, strategy),
         print(remedies(model, strategy, workload, files.machine, files.times, limit), most, " ", "; "));
  }
}

/// Returns the strategy with plain names of axes, priced again if they changed. Returns it unchanged if the new blocks
/// make it slower by more than 0.1 % or need more memory.
Planned renamed(const Planned& found, const Model& model, const Workload& workload, const MachineFiles& files) {
  constexpr double worse = 1.001;
  const Strategy strategy = with_plain_axes(found.strategy);
  if (strategy.print() == found.strategy.print()) return found;
  Cost cost = estimate(bind(model, strategy, workload), files.machine, files.times);
  const bool as_good = cost.seconds <= worse * found.cost.seconds && cost.memory.total <= found.cost.memory.total;
  return as_good ? Planned{strategy, std::move(cost)} : found;
}

/// Returns the strategy with the algorithms of products that are fastest on the machine, if it still fits.
Planned with_products(Planned found, const Model& model, const Workload& workload, const MachineFiles& files,
                      Index limit) {
  const Strategy strategy = choose_products(model, found.strategy, workload, files.machine, files.times);
  if (strategy.rules().size() == found.strategy.rules().size()) return found;
  Cost cost = estimate(bind(model, strategy, workload), files.machine, files.times);
  return most_held(cost, limit).missing == 0 ? Planned{strategy, std::move(cost)} : found;
}

}  // namespace

int plan(const Options& options, const ModelFactory& factory) {
  const MachineFiles files = load_machine(options);
  const Model model = make_model(options, factory);
  const Workload workload{options.trainer.batch, options.trainer.dtype, true, options.trainer.optimizer};
  PlannerOptions wanted;
  wanted.ranks = options.ranks;
  wanted.best = options.best;
  wanted.examined = options.examined;
  std::vector<LeftOut> left_out;
  wanted.left_out = [&](const LeftOut& pattern) { left_out.push_back(pattern); };
  const std::string prefix = options.out.empty() ? default_prefix : options.out;
  check_why_not(options.why_not, model);
  if (options.out.empty()) check_free(options.best);
  check_writable({{"--out", file_name(prefix, 1)}});
  wanted.kinds.clear();
  for (const auto& kind : options.kinds)
    wanted.kinds.push_back(about("--kinds", kind, [&] { return schedule_generator(parse_schedule_kind(kind)).kind; }));
  std::vector<Planned> found;
  try {
    found = search(model, workload, files, wanted, limit_of(options, files.machine));
  } catch (const Error& error) {
    if (left_out.empty()) throw;
    fail("{}; {}", error.what(), left_out_text(left_out, "; "));
  }
  const Index limit = limit_of(options, files.machine);
  for (auto& each : found) {
    each = with_products(renamed(each, model, workload, files), model, workload, files, limit);
    each.strategy = with_short_rules(model, each.strategy);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.cost.seconds < b.cost.seconds; });
  fmt::print("machine  {}\n", files.machine.name);
  if (!files.note.empty()) fmt::print("note     {}\n", files.note);
  if (!left_out.empty()) fmt::print("{}\n", left_out_text(left_out, "\n         "));
  fmt::print("\n{:<24} {:>10} {:>10} {:>10} {:>10}  {}\n", "file", "ms/step", "samples/s", "MiB held", "MiB sent",
             "description");
  std::vector<std::string> names;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::string& path = names.emplace_back(file_name(prefix, static_cast<int>(i) + 1));
    const auto& [strategy, cost] = found[i];
    write_text("--out", path, strategy.print());
    fmt::print("{:<24} {:>10.3f} {:>10} {:>10.1f} {:>10.1f}  {}\n", path, cost.seconds * 1e3,
               print_rate(cost.samples_per_second), static_cast<double>(cost.memory.total) / (1 << 20),
               cost.sent / (1 << 20), describe(model, strategy));
  }
  print_reasons(found, names, model, workload, files, options.ranks, limit);
  for (const auto& rule : options.why_not) print_why_not(rule, found.front(), model, workload, files);
  return 0;
}

}  // namespace partita::cli
