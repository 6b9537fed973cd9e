#include "src/cli/output/schedule_report.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/schedule/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace partita::cli {

namespace {

/// The share of a stage's work that one group has.
double share_of_group(const Schedule& schedule) {
  return static_cast<double>(schedule.stages.size()) / schedule.groups();
}

}  // namespace

std::vector<GroupMemory> equal_memory(const Schedule& schedule, double filter_memory) {
  const double share = share_of_group(schedule);
  return std::vector(static_cast<std::size_t>(schedule.groups()), GroupMemory{share, filter_memory * share, 0});
}

ScheduleReport examine(const Schedule& schedule, const GroupGraph& graph, const ScheduleRequest& request) {
  const double share = share_of_group(schedule);
  ScheduleTimes times = equal_times(graph.groups(), 1, request.times, request.transfer);
  for (auto& each : times.groups)
    each = {each.forward * share, each.backward_data * share, each.backward_filter * share};
  return {schedule, request.times, request.transfer, simulate(schedule, graph, times),
          peak_memory(schedule, equal_memory(schedule, request.filter_memory))};
}

std::string print(const ScheduleReport& report, int columns) {
  const auto& [schedule, times, transfer, simulation, peaks] = report;
  std::string text =
      fmt::format("schedule     {}: {}, {} of layers, {}{}\n", schedule.kind,
                  counted(static_cast<Index>(schedule.stages.size()), "stage"), counted(schedule.groups(), "group"),
                  counted(schedule.microbatches(), "microbatch", "es"),
                  schedule.replicas() > 1 ? fmt::format(", {} replicas", schedule.replicas()) : "");
  text += fmt::format(
      "times        forward {:g}, backward of inputs {:g}, of weights {:g} per stage and microbatch; transfer {:g}\n",
      times.forward, times.backward_data, times.backward_filter, transfer);
  text += fmt::format("makespan     {:.6g}\n", simulation.makespan);
  text += fmt::format(
      "bubble_rate  {:.4f} (idle share of {:.6g}, the longest time from first start to last end on a stage)\n",
      simulation.bubble_rate(), simulation.cost);
  text += "\nstage  actions        busy        idle  peak activations\n";
  for (std::size_t stage = 0; stage < schedule.stages.size(); ++stage)
    text += fmt::format("{:>5}  {:>7}  {:>10.6g}  {:>10.6g}  {:>16.6g}\n", stage, schedule.stages[stage].size(),
                        simulation.busy[stage], simulation.idle(static_cast<int>(stage)), peaks[stage]);
  return columns > 0 ? text + "\n" + draw_timeline(simulation, columns) : text;
}

std::string draw(const ScheduleReport& report) {
  const auto& schedule = report.schedule;
  return timeline_svg(report.simulation, fmt::format("{}, {}, {}: bubble rate {:.4f}", schedule.kind,
                                                     counted(static_cast<Index>(schedule.stages.size()), "stage"),
                                                     counted(schedule.microbatches(), "microbatch", "es"),
                                                     report.simulation.bubble_rate()));
}

std::vector<std::string> microbatch_notes(const Strategy& strategy, const Plan& plan) {
  std::vector<std::string> notes;
  if (plan.microbatches < strategy.microbatches())
    notes.push_back(fmt::format("the strategy asks for {} microbatches, but the batch has {}; each is a microbatch",
                                strategy.microbatches(), counted(plan.microbatches, "sample")));
  const auto by_batch = [](const LayerPlan& layer) { return layer.op->depends_on_microbatches(); };
  if (plan.microbatches > 1 && plan.workload.training && std::any_of(plan.layers.begin(), plan.layers.end(), by_batch))
    notes.push_back(fmt::format(
        "batch normalization computes its statistics for each of the {} microbatches, not for the whole batch",
        plan.microbatches));
  return notes;
}

}  // namespace partita::cli
