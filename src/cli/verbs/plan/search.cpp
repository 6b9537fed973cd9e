#include "src/cli/verbs/plan/search.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/planner/choose_products.hpp"
#include "partita/strategies/planner/memory_remedies.hpp"
#include "partita/strategies/schedule/generators.hpp"
#include "src/cli/inputs/settle_strategy.hpp"
#include "src/cli/options/option_values.hpp"
#include "src/cli/output/memory_fit.hpp"
#include "src/cli/output/plain_axes.hpp"
#include "src/cli/output/schedule_report.hpp"
#include "src/cli/verbs/plan/reasons.hpp"
#include "strategies/planner/short_rules.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>

namespace partita::cli {

namespace {

/// Some of the layout patterns in which a layer cannot run, with the reasons; "" if there are none. The text gives no
/// number, because the search does not reach every grid on which that would be so.
std::string left_out_text(const std::vector<LeftOut>& patterns, std::string_view separator) {
  if (patterns.empty()) return "";
  constexpr std::size_t most = 3;
  std::string text = fmt::format("some layers cannot run this way{}", patterns.size() > most ? ", for example" : "");
  for (std::size_t i = 0; i < std::min(most, patterns.size()); ++i)
    text += fmt::format("{}\"{}\" on \"{}\"{}: {}", separator, patterns[i].pattern, patterns[i].grid,
                        patterns[i].still_tried ? ", tried for the others" : ", not tried", patterns[i].why);
  return text;
}

std::string unfinished_text(const Unfinished& what, double limit) {
  std::string text = fmt::format("--time-limit {}: the search ended early;", limit);
  if (what.candidates > 0)
    text += fmt::format(" {} not examined, of at least {:.3f} ms by estimate{}", counted(what.candidates, "candidate"),
                        what.least_seconds * 1e3, what.not_improved > 0 ? "; " : "");
  if (what.not_improved > 0)
    text += fmt::format("{}groups of layers of {} may have faster layouts", what.candidates > 0 ? "" : " ",
                        what.not_improved == 1 ? "1 strategy" : fmt::format("{} strategies", what.not_improved));
  return text;
}

/// A line on the terminal that counts. The destructor ends the line, since a search may stop early, throw, or examine
/// more candidates than it announced.
class CountingLine {
 public:
  CountingLine() = default;
  CountingLine(const CountingLine&) = delete;
  CountingLine& operator=(const CountingLine&) = delete;
  ~CountingLine() {
    if (begun_) std::fputs("\n", stderr);
  }
  void show(std::string_view what, int done, int all) {
    fmt::print(stderr, "\r{:<60}", fmt::format("{} of {} {}", done, all, what));
    begun_ = true;
  }

 private:
  bool begun_ = false;
};

/// Returns the strategies that the planner finds within `limit` bytes per rank; 0 for no limit. If none fits, throws
/// the planner's Error and adds which changes would make the smallest strategy fit.
std::vector<Planned> found_within(const Model& model, const Workload& workload, const MachineFiles& files,
                                  PlannerOptions options, Index limit) {
  CountingLine line;
  if (isatty(STDERR_FILENO) != 0)
    options.progress = [&](std::string_view what, int done, int all) { line.show(what, done, all); };
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

/// Returns the strategy with plain names of axes, priced again if they changed. On joined axes, other products may be
/// the fastest for what is still open; they are chosen if there is `time` for it. Returns it unchanged if a layer
/// cannot run on them, if it is slower by more than 0.1 %, or if it needs more memory than before and than the limit.
Planned renamed(const Planned& found, const Model& model, const Workload& workload, const MachineFiles& files,
                Index limit, bool time) {
  constexpr double worse = 1.001;
  Strategy strategy = with_plain_axes(found.strategy);
  if (strategy.print() == found.strategy.print()) return found;
  Planned renamed = found;
  try {
    if (time) {
      auto more = choose_products(model, strategy, workload, files.machine, files.times, limit);
      strategy = std::move(more.strategy);
      renamed.choices.insert(renamed.choices.end(), more.choices.begin(), more.choices.end());
    }
    renamed.cost = estimate(bind(model, strategy, workload), files.machine, files.times);
  } catch (const Error&) {  // e.g. an algorithm needs the axes apart
    return found;
  }
  renamed.strategy = strategy;
  if (renamed.cost.seconds > worse * found.cost.seconds ||
      renamed.cost.memory.total > std::max(found.cost.memory.total, limit))
    return found;
  for (ProductChoice& choice : renamed.choices) choice.rule = strategy.rule_of(choice.layers.front());
  return renamed;
}

PlannerOptions planner_options(const PlanOptions& options, int ranks) {
  PlannerOptions wanted;
  wanted.ranks = ranks;
  wanted.best = options.best;
  wanted.examined = options.examined;
  wanted.keep_batch_norm = options.keep_batch_norm;
  wanted.time_limit = options.time_limit;
  if (!options.kinds.empty()) wanted.kinds.clear();
  if (options.kinds == std::vector<std::string>{"none"}) return wanted;
  for (const auto& kind : options.kinds)
    wanted.kinds.push_back(
        naming_option("--kinds", kind, [&] { return schedule_generator(parse_schedule_kind(kind)).kind; }));
  return wanted;
}

/// A note for each kind of result that a strategy changes, with the number of the first such strategy.
void add_changes(const std::vector<Planned>& found, const Model& model, const Workload& workload,
                 std::vector<std::string>& notes) {
  for (std::size_t i = 0; i < found.size(); ++i)
    for (const auto& note : microbatch_notes(found[i].strategy, bind(model, found[i].strategy, workload)))
      notes.push_back(fmt::format("strategy {}: {}; --keep-batch-norm leaves such strategies out", i + 1, note));
}

}  // namespace

Search search(const PlanOptions& options, const Model& model, const Workload& workload, const MachineFiles& files,
              int ranks) {
  PlannerOptions wanted = planner_options(options, ranks);
  Search search;
  std::vector<LeftOut> left_out;
  wanted.left_out = [&](const LeftOut& pattern) { left_out.push_back(pattern); };
  wanted.unfinished = [&](const Unfinished& what) {
    search.ended_early = true;
    search.notes.push_back(unfinished_text(what, options.time_limit));
  };
  wanted.plain_pipeline = [&](const Planned& fastest) { search.plain_pipeline = fastest; };
  const Index limit = limit_of(options, files.machine);
  try {
    search.found = found_within(model, workload, files, wanted, limit);
  } catch (const Error& error) {
    if (left_out.empty()) throw;
    fail("{}; {}", error.what(), left_out_text(left_out, "; "));
  }
  for (Planned& each : search.found) {
    each = renamed(each, model, workload, files, limit, !search.ended_early);
    each.strategy = with_short_rules(model, each.strategy);
  }
  std::stable_sort(search.found.begin(), search.found.end(),
                   [](const Planned& a, const Planned& b) { return a.cost.seconds < b.cost.seconds; });
  for (std::size_t i = 0; i < search.found.size(); ++i)
    if (const auto& choices = search.found[i].choices; !choices.empty())
      search.notes.push_back(fmt::format("strategy {}: chosen for the machine: {}", i + 1, print_choices(choices)));
  if (!left_out.empty()) search.notes.push_back(left_out_text(left_out, "\n         "));
  add_changes(search.found, model, workload, search.notes);
  return search;
}

}  // namespace partita::cli
