#include "strategies/plan/op_traffic.hpp"

#include <algorithm>

namespace partita {

namespace {

/// Returns true if a halo needs transfers. If all windows stay in their blocks, the halo has no axes.
bool moves(const std::optional<Halo>& halo) { return halo && halo->axes() != 0; }
bool moves(const std::optional<Ring>& ring) { return ring && ring->moves(); }

}  // namespace

bool is_silent(const LayerPlan& layer, const StepOp& op) {
  using enum StepOp::Kind;
  const LayerBinding& bound = *layer.binding;
  const auto part = static_cast<std::size_t>(op.part);
  switch (op.kind) {
    case redistribute_input: return bound.redistribute_input[part].empty();
    case redistribute_output: return bound.redistribute_output.empty();
    case redistribute_dy: return bound.redistribute_dy.empty();
    case redistribute_dx: return bound.redistribute_dx[part].empty();
    case forward:
      return !moves(bound.at.x_halo) && !moves(bound.at.ring) && bound.at.collectives.empty() &&
             bound.at.products.empty();
    case start_backward: return !moves(bound.at.dy_halo) && bound.at.collectives.empty();
    case backward_filter:
    case backward_data: return bound.at.products.empty() && !moves(bound.at.x_halo) && !moves(bound.at.ring);
    case gather_weights:
    case scatter_gradients: return !bound.gathers_weights();
    default: return false;
  }
}

void OpTraffic::add(const StepOp& op, Pass pass, int times) {
  using enum StepOp::Kind;
  begin(op, pass, times);
  switch (op.kind) {
    case send_output:
      add_sums(boundary());
      add_transfer(boundary());
      return;
    case send_gradient: return add_transfer(boundary());
    case share_loss:
      return add(Purpose::statistics, "loss to all stages", Verb::all_reduce, 0,
                 {1, plan_.target().results() * size_of(DType::f64)});
    default:
      if (runs()) pass_ == Pass::update ? add_once() : add_in_stage();
  }
}

void OpTraffic::add_in_stage() {
  using enum StepOp::Kind;
  const auto part = static_cast<std::size_t>(op_.part);
  switch (op_.kind) {
    case redistribute_input: return add_steps(Purpose::input, "x", layer_->redistribute_input[part]);
    case redistribute_output: return add_steps(Purpose::output, "y", layer_->redistribute_output);
    case redistribute_dy: return add_steps(Purpose::output, "dy", layer_->redistribute_dy);
    case redistribute_dx: return add_steps(Purpose::input, "dx", layer_->redistribute_dx[part]);
    case forward: return add_forward();
    case start_backward: return add_start_backward();
    case backward_filter: return add_product(2, "product dw");
    case backward_data: return add_backward_data();
    case gather_weights:
      for (const auto& rest : layer_->rest) add_steps(Purpose::gather, "gathered w", rest.gather);
      return;
    case scatter_gradients:
      element_ = master_;
      for (const auto& rest : layer_->rest) add_steps(Purpose::scatter, "scattered dw", rest.scatter);
      return;
    default: return;  // no messages
  }
}

void OpTraffic::add_once() {
  switch (op_.kind) {
    case StepOp::Kind::sum_gradients:
    case StepOp::Kind::sum_zero_gradients: return sum_gradients();
    case StepOp::Kind::add_replicas: return add_replicas();
    case StepOp::Kind::add_copies: return add_copies();
    case StepOp::Kind::update: return update();
    default: return;  // no messages
  }
}

void OpTraffic::add_sums(const StepOp& op) {
  begin(op, Pass::stages, 1);
  add_sums(boundary());
}

void OpTraffic::add_transfer(const StepOp& op) {
  begin(op, Pass::stages, 1);
  add_transfer(boundary());
}

void OpTraffic::add_forward() {
  if (moves(layer_->at.x_halo)) add_exchange(Purpose::halo_x, "halo x", grid_.all(), x_halo(), false, rank_);
  add_statistics(Collective::When::forward);
  add_product(0, "product y");
  add_ring(false);
}

void OpTraffic::add_start_backward() {
  if (moves(layer_->at.dy_halo) && layer_.needs_any_dx())
    add_exchange(Purpose::halo_dy, "halo dy", grid_.all(), layer_->at.dy_halo->transfer(rank_), false, rank_);
  add_statistics(Collective::When::backward);
}

/// Adds the adjoint of x's halo if dy has no halo: every rank sends back dx for the elements of x that it received.
void OpTraffic::add_backward_data() {
  if (moves(layer_->at.x_halo) && !layer_->at.dy_halo)
    add_exchange(Purpose::halo_dx, "halo dx", grid_.all(), x_halo(), true, rank_);
  add_product(1, "product dx");
  add_ring(true);
}

void OpTraffic::add_sums(const StageBoundary& boundary) {
  if (runs())
    add_steps(Purpose::stages, fmt::format("y to stage {}", plan_.stage_running(boundary.group, replica_)),
              boundary.complete_sums);
}

void OpTraffic::add_transfer(const StageBoundary& boundary) {
  using enum StepOp::Kind;
  const bool back = op_.kind == send_gradient || op_.kind == receive_gradient;
  const bool sends = op_.kind == send_output || op_.kind == send_gradient;
  add_exchange(Purpose::stages,
               fmt::format("{} stage {}", back ? "dy from" : "y to", plan_.stage_running(boundary.group, replica_)), 0,
               boundary.transfer(world_rank_, back), !sends, world_rank_);
}

void OpTraffic::sum_gradients() {
  each_bucket([&](const Bucket& bucket) {
    add_collective(Purpose::sum, "dw", plan_.sharded_optimizer ? Verb::reduce_scatter : Verb::all_reduce, bucket.axes,
                   plan_.elements(bucket, rank_), master_);
  });
}

void OpTraffic::add_replicas() {
  const auto add_both = [&](std::string_view role, Index elements) {
    if (elements > 0) add(Purpose::replicas, role, Verb::all_reduce, 0, {1, elements * master_});
  };
  each_bucket([&](const Bucket& bucket) { add_both("dw of both replicas", plan_.share(bucket, rank_).extent()); });
  for (std::size_t w = 0; w < layer_->weights.size(); ++w)
    if (!layer_->weights[w].trained) add_both("running statistics of both replicas", layer_->at.w[w].elements(rank_));
}

void OpTraffic::add_copies() {
  each_bucket([&](const Bucket& bucket) {
    if (bucket.other_copy < 0 || plan_.holds_both_copies(bucket, plan_.stage_of_rank(world_rank_))) return;
    if (const Index elements = plan_.share(bucket, rank_).extent(); elements > 0)
      add(Purpose::copies, "dw of both copies", Verb::all_reduce, 0, {1, elements * master_});
  });
}

void OpTraffic::update() {
  each_bucket([&](const Bucket& bucket) {
    if (plan_.workload.optimizer.needs_norms())
      add_collective(Purpose::update, "norms", Verb::all_reduce, plan_.norm_axes(bucket),
                     2 * static_cast<Index>(bucket.entries.size()), size_of(DType::f64));
    if (plan_.sharded_optimizer)
      add_collective(Purpose::update, "w", Verb::all_gather, bucket.axes, plan_.elements(bucket, rank_), master_);
  });
}

void OpTraffic::add(Purpose purpose, std::string_view role, Verb verb, AxisSet axes, Traffic traffic) {
  if (traffic == Traffic{}) return;
  append({std::string(role), verb, axes, {traffic.messages * times_, traffic.bytes * times_}, pass_, purpose, {}, op_});
}

/// Adds the traffic of an exchange. `rank` is the rank's number among the peers.
void OpTraffic::add_exchange(Purpose purpose, std::string_view role, AxisSet axes, std::vector<PeerTraffic> peers,
                             int rank) {
  const int number = exchanges_++;
  if (sent_to_all(peers) == Traffic{} && !(keeps_received_ && !peers.empty())) return;
  for (auto& [peer, out, in] : peers) {
    peer -= rank;
    for (Traffic* each : {&out, &in}) *each = {each->messages * times_, each->bytes * times_};
  }
  const Traffic sent = sent_to_all(peers);
  append({std::string(role), Verb::exchange, axes, sent, pass_, purpose, std::move(peers), op_, number});
}

/// Adds a transfer. With `back`, the rank sends what the transfer has it receive.
void OpTraffic::add_exchange(Purpose purpose, std::string_view role, AxisSet axes, const TransferPlan& plan, bool back,
                             int rank) {
  std::vector<PeerTraffic> peers;
  add_peers(peers, plan, element_, back);
  add_exchange(purpose, role, axes, std::move(peers), rank);
}

/// Returns the transfers of x's halo. They are planned once, because recomputation and the adjoint use them too.
const TransferPlan& OpTraffic::x_halo() {
  if (!x_halo_) x_halo_ = layer_->at.x_halo->transfer(rank_);
  return *x_halo_;
}

void OpTraffic::add_steps(Purpose purpose, std::string_view role, const LayerPlan::Steps& steps) {
  for (const auto& step : steps) {
    if (step.verb != Verb::exchange) {
      add(purpose, role, step.verb, step.axes, traffic(step, rank_, element_));
      continue;
    }
    add_exchange(purpose, role, step.axes, plan_transfer(step.from, step.to, rank_), false, rank_);
  }
}

void OpTraffic::add_statistics(Collective::When when) {
  for (const auto& collective : layer_->at.collectives)
    if (collective.when == when)
      add_collective(Purpose::statistics, collective.role, Verb::all_reduce, collective.axes,
                     collective.layout.elements(rank_) * collective.factor, size_of(DType::f64));
}

void OpTraffic::add_collective(Purpose purpose, std::string_view role, Verb verb, AxisSet axes, Index elements,
                               Index element_size) {
  if (elements > 0 && grid_.group_size(axes) > 1) add(purpose, role, verb, axes, {1, elements * element_size});
}

void OpTraffic::add_product(std::size_t which, std::string_view role) {
  if (which >= layer_->at.products.size()) return;
  const ProductPlan& product = layer_->at.products[which];
  const std::size_t before = list_.size();
  add_exchange(Purpose::product, role, grid_.all(), product.traffic(rank_, element_), rank_);
  if (list_.size() > before) list_.back().turns = static_cast<int>(product.panels.size());
  add_steps(Purpose::product, role, product.redistribute_c);
}

/// Adds what travels around a ring in a forward or a backward. The messages of a step travel together.
void OpTraffic::add_ring(bool back) {
  if (!moves(layer_->at.ring)) return;
  const auto add = [&](Purpose purpose, std::string_view role, RingTraffic traffic) {
    const std::size_t before = list_.size();
    add_exchange(purpose, role, grid_.all(), std::move(traffic.peers), rank_);
    if (list_.size() > before) list_.back().turns = traffic.hops;
  };
  add(Purpose::ring, "ring x", layer_->at.ring->traffic(rank_, back, element_, master_));
  add(Purpose::ring_sums, back ? "ring dx" : "ring y", layer_->at.ring->result_traffic(rank_, back, master_));
}

}  // namespace partita
