#include "strategies/cost/local_work.hpp"

#include <algorithm>

namespace partita {

namespace {

/// More microbatches in flight than this do not make the caches colder.
constexpr std::size_t most_timed = 4;

std::string extents(const Box& box) {
  std::string text;
  for (int d = 0; d < box.dims(); ++d) text += fmt::format("{}{}", d == 0 ? "" : "x", box.extent(d));
  return text;
}

/// Describes what a rank copies and adds in a redistribution: the extents of its block after each step.
std::string conversions(const LayerPlan::Steps& steps, int rank) {
  std::string text;
  for (const auto& step : steps) text += fmt::format(">{} {}", name(step.verb), extents(step.to.owned(rank)));
  return text;
}

std::string halo(const std::optional<Halo>& halo, int rank) {
  return halo ? fmt::format("+{}", extents(halo->needed(rank))) : "";
}

/// What a rank sends and receives in a step of a ring, as a digit for each part: 1 sends, 2 receives.
std::string moves(const RingStep& step) {
  std::string text = " moves ";
  for (const auto& [send, receive] : step.moves) text += std::to_string((send ? 1 : 0) + (receive ? 2 : 0));
  return text;
}

}  // namespace

std::string local_work(const LayerPlan& layer, int rank, const Workload& workload) {
  std::string text = fmt::format("{} {} {}{}:", layer.op->kind(), layer.op->describe(), name(workload.dtype),
                                 workload.training ? "" : " evaluation");
  if (layer.activation_fusion() > ActivationFusion::where_fused)
    text += fmt::format(" then {}", name(layer.next_activation->kind));
  if (layer.forwards_gradient && !layer.computed_by_producer) text += " hands dy on";
  if (layer.computed_by_producer) text += layer.forwards_gradient ? " computed before" : " forward computed before";
  if (layer.drops >= 0) text += fmt::format(" drops x{}", layer.drops + 1);
  if (layer.computed_by_reader) text += " forward computed behind";
  if (layer.adds_gradient) text += " adds dx";
  const bool back = workload.training;
  for (std::size_t i = 0; i < layer->at.x.size(); ++i)
    text += fmt::format(" x {}{}{}{}", extents(layer->at.x[i].owned(rank)),
                        conversions(layer->redistribute_input[i], rank), back && layer->needs_dx[i] ? " dx" : "",
                        back && layer->needs_dx[i] ? conversions(layer->redistribute_dx[i], rank) : "");
  text += halo(layer->at.x_halo, rank);
  for (const auto& w : layer->at.w) text += fmt::format(" w {}", extents(w.owned(rank)));
  text += fmt::format(" y {}{}", extents(layer->at.y.owned(rank)), conversions(layer->redistribute_output, rank));
  if (back) text += conversions(layer->redistribute_dy, rank) + halo(layer->at.dy_halo, rank);
  for (const auto& product : layer->at.products)
    text += fmt::format(" {}: {} {} {}", name(product.algorithm), extents(product.a_used.owned(rank)),
                        extents(product.b_used.owned(rank)), product.panels.size());
  if (layer->at.ring)
    for (const RingStep& step : layer->at.ring->steps(rank))
      text +=
          fmt::format(" ring {} of {}{}", step.keys ? extents(*step.keys) : "", extents(step.computed), moves(step));
  for (const auto& boundary : layer.sends_to_stages) text += conversions(boundary.complete_sums, rank);
  return text;
}

std::string update_work(Index elements, const Workload& workload) {
  return fmt::format("update {} {}: {}", workload.optimizer.print(), name(workload.dtype), elements);
}

std::vector<int> timed_microbatches(const Plan& plan) {
  const bool recomputes =
      std::any_of(plan.layers.begin(), plan.layers.end(), [](const auto& layer) { return layer.recompute; });
  std::vector<int> timed;
  for (int m = 0; m < plan.microbatches && timed.size() < (recomputes ? 1 : most_timed); ++m)
    if (plan.replica_of(m) == 0) timed.push_back(m);
  return timed;
}

Loop timed_loop(const Plan& plan, int stage) {
  if (!plan.workload.training || plan.schedule.stages.empty()) return {};
  const auto timed = timed_microbatches(plan);
  std::vector<int> held(plan.stage_of_group.size(), 0);  // by group
  int most = 1;
  for (const Action& action : plan.schedule.stages[stage]) {
    if (action.replica != 0 || std::find(timed.begin(), timed.end(), action.microbatch) == timed.end()) continue;
    int& now = held[action.group];
    if (action.kind == Action::Kind::forward) most = std::max(most, ++now);
    if (action.kind == Action::Kind::backward || action.kind == Action::Kind::backward_data) --now;
  }
  return {static_cast<int>(timed.size()), most};
}

}  // namespace partita
