#include "price.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/collective_cost.hpp"

namespace partita {

namespace {

/// e.g. "12.5 us".
std::string time(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3f} ms", seconds * 1e3);
  return fmt::format("{:.3f} us", seconds * 1e6);
}

std::string rate(double per_second, std::string_view unit) {
  return fmt::format("{:.4g} G{}/s", per_second / 1e9, unit);
}

std::string_view name(Pass pass) {
  switch (pass) {
    case Pass::forward: return "forward";
    case Pass::backward_data: return "backward data";
    case Pass::backward_filter: return "backward filter";
    case Pass::stages: return "stages";
    case Pass::update: return "update";
  }
  return "";
}

std::string line(std::string_view pass, std::string_view what, double seconds, const std::string& formula) {
  return fmt::format("    {:<16} {:<22} {:>12} = {}\n", pass, what, time(seconds), formula);
}

std::string link(const Machine& machine, const Route& route) {
  const Level& level = machine.levels[static_cast<std::size_t>(route.level)];
  return fmt::format("level \"{}\", latency {} ({}), {} of a link of {} ({})", level.name, time(level.latency.value),
                     level.latency.source, rate(route.bandwidth, "B"), rate(level.bandwidth.value, "B"),
                     level.bandwidth.source);
}

std::string formula(const Machine& machine, const PlannedTraffic& item, const Route& route) {
  const Level& level = machine.levels[static_cast<std::size_t>(route.level)];
  const auto calls = static_cast<double>(item.traffic.messages), bytes = static_cast<double>(item.traffic.bytes);
  const int ranks = item.verb == Verb::exchange ? 2 : route.ranks;
  if (const auto found = level.verbs.find({item.verb, ranks}); found != level.verbs.end())
    return fmt::format("{} x the {} of {} bytes among {} ranks of level \"{}\" ({})", item.traffic.messages,
                       partita::name(item.verb), bytes / calls, ranks, level.name, found->second.source);
  if (item.verb == Verb::exchange)
    return fmt::format("{} x latency + {} bytes / bandwidth: {}", item.traffic.messages, item.traffic.bytes,
                       link(machine, route));
  const double beta = 1 / route.bandwidth, gamma = 3 / machine.memory_bandwidth.value;
  const auto algorithm = cheapest(item.verb, ranks, bytes / calls, level.latency.value, beta, gamma);
  const CollectiveCost cost = collective_cost(item.verb, algorithm, ranks, bytes / calls);
  return fmt::format(
      "{} {} by {} over {} ranks: {} rounds x latency + {:.4g} bytes / bandwidth + {:.4g} bytes added: {}",
      item.traffic.messages, partita::name(item.verb), name(algorithm), ranks, cost.rounds, cost.bytes, cost.combined,
      link(machine, route));
}

std::string work_formula(const Price& price, const Machine& machine, const LayerPlan& layer, int rank, bool measured,
                         const std::string& where) {
  if (measured) return fmt::format("measured on {}: {}", where, local_work(layer, rank, price.workload()));
  const LocalWork work = price.local(layer, rank);
  return fmt::format(
      "kernel {} ({}) + max({:.4g} operations / ({} x {:.3g}), {:.4g} bytes / {}): {}; {}", time(machine.kernel.value),
      machine.kernel.source, work.flops, rate(machine.arithmetic.value, "flop"), work.share, work.bytes,
      rate(machine.memory_bandwidth.value, "B"), machine.arithmetic.source, machine.memory_bandwidth.source);
}

}  // namespace

std::string why(const Plan& plan, const Machine& machine, const KernelTimes& times, int index) {
  const Price price(plan, machine, times, splits_backward(plan.schedule));
  const LayerPlan& layer = plan.layers[static_cast<std::size_t>(index)];
  const Grid& grid = plan.grid_of(index);
  const LayerCost cost = price.layer(index, false);
  std::string text =
      fmt::format("{}: {} a microbatch of {} samples, on rank {} of its grid, which takes longest\n", layer.name,
                  time(cost.forward.total() + cost.backward_data.total() + cost.backward_filter.total()),
                  plan.samples(0).extent(), cost.rank);
  const auto compute = [&](std::string_view pass, const PassCost& of) {
    if (of.compute > 0)
      text += line(pass, "compute", of.compute,
                   work_formula(price, machine, layer, cost.rank, cost.measured, times.where()));
  };
  compute(name(Pass::forward), cost.forward);
  compute(name(Pass::backward_data), cost.backward_data);
  compute(name(Pass::backward_filter), cost.backward_filter);
  const auto add = [&](const std::vector<PlannedTraffic>& items) {
    for (const auto& item : items)
      text += line(name(item.pass), item.role, price.seconds(item, grid, cost.rank),
                   formula(machine, item, price.route(item, grid, cost.rank)));
  };
  add(plan.microbatch_traffic(index, grid.first_rank() + cost.rank));
  add(plan.step_traffic(index, grid.first_rank() + cost.rank));
  for (const auto& [pass, of] :
       {std::pair(Pass::forward, cost.forward), std::pair(Pass::backward_data, cost.backward_data)})
    if (of.hidden > 0)
      text += fmt::format("    {:<16} {:<22} {:>12} of its halo, behind computing\n", name(pass), "hidden",
                          time(of.hidden));
  return text;
}

}  // namespace partita
