#include "src/cli/verbs/train/trace.hpp"

#include "partita/strategies/schedule/simulate.hpp"
#include "src/cli/files/json.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace partita::cli {

namespace {

using Kind = Action::Kind;

constexpr int measured = 0, predicted = 1;  // process numbers of the two groups of rows
constexpr std::size_t numbers = 7;          // numbers that an action is packed into

/// Returns the actions of every rank. Collective: every rank of `world` calls it.
std::vector<std::vector<TimedAction>> gather(const std::vector<TimedAction>& mine, Communicator& world) {
  std::vector<double> packed;
  for (const auto& [a, start, end] : mine)
    packed.insert(packed.end(),
                  {static_cast<double>(a.kind), static_cast<double>(a.group), static_cast<double>(a.microbatch),
                   static_cast<double>(a.replica), static_cast<double>(a.peer), start, end});
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<Index> counts;
  Index total = 0;
  for (const double each : gather_numbers(world, static_cast<double>(packed.size())))
    total += counts.emplace_back(static_cast<Index>(each));
  std::vector<double> all(static_cast<std::size_t>(total));
  world.all_gather(packed.data(), all.data(), counts, DType::f64, {}).wait();
  std::vector<std::vector<TimedAction>> ranked(ranks);
  const double* at = all.data();
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (Index i = 0; i < counts[rank]; i += numbers, at += numbers) {
      const auto whole = [&](std::size_t n) { return static_cast<int>(at[n]); };
      ranked[rank].push_back({{static_cast<Kind>(whole(0)), whole(1), whole(2), whole(3), whole(4)}, at[5], at[6]});
    }
  return ranked;
}

/// The median times of each group's actions, by kind, on the first rank of its stage.
ScheduleTimes median_times(const Plan& plan, const std::vector<std::vector<TimedAction>>& ranks) {
  ScheduleTimes times;
  for (int group = 0; group < static_cast<int>(plan.stage_of_group.size()); ++group) {
    const Grid& grid = plan.grids[plan.stage_running(group)];
    const auto& actions = ranks[grid.first_rank()];
    const auto of = [&](Kind kind) {
      std::vector<double> all;
      for (const auto& [action, start, end] : actions)
        if (action.kind == kind && action.group == group) all.push_back(end - start);
      std::sort(all.begin(), all.end());
      return all.empty() ? 0 : all[all.size() / 2];
    };
    const double both = of(Kind::backward) / 2;
    times.groups.push_back({of(Kind::forward), both + of(Kind::backward_data), both + of(Kind::backward_filter),
                            of(Kind::reduce), of(Kind::step)});
  }
  return times;
}

/// Returns the delays of each rank among the actions of the trace: from the last one before its first action on.
/// Collective: every rank of `world` calls it.
std::vector<std::vector<TimedDelay>> gather(const std::vector<TimedDelay>& mine,
                                            const std::vector<std::vector<TimedAction>>& ranks, Communicator& world) {
  std::vector<TimedDelay> shown;
  if (const auto& actions = ranks[static_cast<std::size_t>(world.rank())]; !actions.empty())
    for (const TimedDelay& delay : mine) {
      if (delay.end <= actions.front().start) shown.clear();
      if (delay.start < actions.back().end) shown.push_back(delay);
    }
  std::vector<std::vector<TimedDelay>> all(ranks.size());
  std::vector<Index> counts;
  for (const double each : gather_numbers(world, static_cast<double>(shown.size())))
    counts.push_back(2 * static_cast<Index>(each));
  std::vector<double> packed(static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), Index{0})));
  static_assert(sizeof(TimedDelay) == 2 * sizeof(double));
  world.all_gather(shown.data(), packed.data(), counts, DType::f64, {}).wait();
  auto at = packed.begin();
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    for (Index i = 0; i < counts[rank]; i += 2, at += 2) all[rank].push_back({at[0], at[1]});
  return all;
}

/// Collects the events of a Chrome trace. Times are in seconds; `origin` is the time 0 of the trace.
class Events {
 public:
  explicit Events(double origin) : origin_(origin) {}

  void name_rows(const Plan& plan, const char* prediction) {
    for (const auto& [pid, what] : {std::pair(measured, "measured"), std::pair(predicted, prediction)})
      add({{"name", "process_name"}, {"ph", "M"}, {"pid", pid}, {"args", {{"name", what}}}});
    for (int rank = 0; rank < plan.ranks(); ++rank)
      add({{"name", "thread_name"},
           {"ph", "M"},
           {"pid", measured},
           {"tid", rank},
           {"args", {{"name", fmt::format("rank {}, stage {}", rank, plan.stage_of_rank(rank))}}}});
    for (std::size_t stage = 0; stage < plan.grids.size(); ++stage)
      add({{"name", "thread_name"},
           {"ph", "M"},
           {"pid", predicted},
           {"tid", stage},
           {"args", {{"name", fmt::format("stage {}", stage)}}}});
  }

  void span(int pid, int row, const Action& action, double start, double end, Index step) {
    add({{"name", action.print()},
         {"ph", "X"},
         {"pid", pid},
         {"tid", row},
         {"ts", microseconds(start)},
         {"dur", whole_nanoseconds(microseconds(end) - microseconds(start))},
         {"args", {{"step", step}, {"group", action.group}, {"microbatch", action.microbatch}}}});
  }

  void delay(int rank, const TimedDelay& delay) {
    add({{"name", "delay"},
         {"ph", "X"},
         {"pid", measured},
         {"tid", rank},
         {"ts", microseconds(delay.start)},
         {"dur", whole_nanoseconds(microseconds(delay.end) - microseconds(delay.start))},
         {"args", {{"why", "--delay"}}}});
  }

  void arrow(int from, double sent, int to, double taken) {
    const int id = ++arrows_;
    add({{"name", "transfer"},
         {"cat", "transfer"},
         {"ph", "s"},
         {"id", id},
         {"pid", measured},
         {"tid", from},
         {"ts", microseconds(sent)}});
    add({{"name", "transfer"},
         {"cat", "transfer"},
         {"ph", "f"},
         {"bp", "e"},
         {"id", id},
         {"pid", measured},
         {"tid", to},
         {"ts", microseconds(taken)}});
  }

  Json take() { return std::move(events_); }

 private:
  /// Rounds microseconds to whole nanoseconds, in which Perfetto counts. It drops a span that overlaps another.
  static double whole_nanoseconds(double microseconds) { return std::round(microseconds * 1e3) / 1e3; }
  double microseconds(double seconds) const { return whole_nanoseconds((seconds - origin_) * 1e6); }
  void add(Json event) { events_.push_back(std::move(event)); }

  double origin_;
  int arrows_ = 0;
  Json events_ = Json::array();
};

/// Adds the arrows of one step: from every send of a stage's first rank to the action on the receiving stage's first
/// rank that needs it. The receiver may start while the sender is still busy with the send, so the arrow begins in the
/// middle of the send or before. It points forward in time. Only different clocks can let an action end before what it
/// needs is sent; then there is no arrow.
void add_arrows(Events& events, const Plan& plan, const std::vector<std::span<const TimedAction>>& step) {
  const auto first_rank = [&](int group, int replica) {
    return plan.grids[plan.stage_running(group, replica)].first_rank();
  };
  for (const auto& grid : plan.grids)
    for (const auto& [a, start, end] : step[grid.first_rank()]) {
      const bool output = a.kind == Kind::send_output;
      if (!output && a.kind != Kind::send_gradient) continue;
      const int to = first_rank(a.peer, a.replica);
      for (const auto& taken : step[to]) {
        const bool takes = output ? taken.action.kind == Kind::forward
                                  : taken.action.kind == Kind::backward || taken.action.kind == Kind::backward_data;
        if (!takes || taken.action.group != a.peer || taken.action.microbatch != a.microbatch) continue;
        const double sent = std::max(start, std::min((start + end) / 2, taken.start));
        if (sent <= taken.end) events.arrow(grid.first_rank(), sent, to, std::max(sent, taken.start));
      }
    }
}

}  // namespace

std::string chrome_trace(const Plan& plan, const std::vector<TimedAction>& mine, const std::vector<TimedDelay>& delays,
                         const std::optional<Simulation>& priced, Communicator& world) {
  const auto ranks = gather(mine, world);
  const auto delays_of_ranks = gather(delays, ranks, world);
  if (world.rank() != 0 || ranks[0].empty()) return "";
  double origin = std::numeric_limits<double>::infinity();
  for (const auto& actions : ranks) origin = std::min(origin, actions.front().start);
  for (const auto& of_rank : delays_of_ranks)
    if (!of_rank.empty()) origin = std::min(origin, of_rank.front().start);
  Events events(origin);
  events.name_rows(plan, priced ? "predicted from the machine file" : "predicted from median measured times");
  const Simulation simulation = priced ? *priced : simulate(plan.schedule, graph_of(plan), median_times(plan, ranks));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    for (const TimedDelay& delay : delays_of_ranks[rank]) events.delay(static_cast<int>(rank), delay);
  const auto length = [&](int rank) { return plan.schedule.stages[plan.stage_of_rank(rank)].size(); };
  const std::size_t steps = ranks[0].size() / length(0);
  double predicted_begin = -std::numeric_limits<double>::infinity();
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<std::span<const TimedAction>> of_step;
    double begin = std::numeric_limits<double>::infinity();
    for (int rank = 0; rank < plan.ranks(); ++rank) {
      of_step.push_back(std::span(ranks[rank]).subspan(step * length(rank), length(rank)));
      begin = std::min(begin, of_step.back().front().start);
      for (const auto& [action, start, end] : of_step.back())
        events.span(measured, rank, action, start, end, static_cast<Index>(step));
    }
    add_arrows(events, plan, of_step);
    predicted_begin = std::max(begin, predicted_begin + simulation.cost);
    for (std::size_t stage = 0; stage < simulation.stages.size(); ++stage)
      for (const auto& [action, start, end] : simulation.stages[stage])
        events.span(predicted, static_cast<int>(stage), action, predicted_begin + start, predicted_begin + end,
                    static_cast<Index>(step));
  }
  return print_json({{"displayTimeUnit", "ms"}, {"traceEvents", events.take()}}, -1);
}

}  // namespace partita::cli
