#include "price.hpp"

#include "partita/strategies/collective_cost.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace partita {

std::vector<int> representatives(const Grid& grid) {
  std::vector<int> ranks{0};
  int stride = grid.size();
  for (int axis = 0; axis < grid.axes(); ++axis) {
    const int extent = grid.extent(axis);
    stride /= extent;
    std::vector<int> coordinates{0};
    if (extent > 2) coordinates.push_back(extent / 2);
    if (extent > 1) coordinates.push_back(extent - 1);
    std::vector<int> next;
    for (const int rank : ranks)
      for (const int at : coordinates) next.push_back(rank + at * stride);
    ranks = std::move(next);
  }
  return ranks;
}

namespace {

Shape local_shape(const Layout& layout, int rank) {
  const Box box = layout.owned(rank);
  Shape shape;
  for (int d = 0; d < box.dims(); ++d) shape.push_back({layout.shape().name(d), box.extent(d)});
  return shape;
}

/// Operations of a layer's forward on one rank.
double local_flops(const LayerPlan& layer, int rank) {
  if (!layer.at.products.empty()) {  // of m n, n k and m k elements, 2 m n k
    const ProductPlan& product = layer.at.products[0];
    const auto volume = [&](const Layout& layout) { return static_cast<double>(layout.owned(rank).volume()); };
    return 2 * std::sqrt(volume(product.a_used) * volume(product.b_used) * volume(product.c_made));
  }
  const Box y = layer.at.y.owned(rank);
  if (y.empty()) return 0;
  if (!layer.op->algorithms()
           .empty()) {  // each weight once a place of y; the operator knows global groups of channels alone
    const auto channels = layer.at.y.shape().find('C');
    const auto places = [&](const Box& box) {
      return static_cast<double>(box.volume()) / static_cast<double>(box.extent(channels));
    };
    const double weights =
        static_cast<double>(layer.at.w[0].owned(rank).volume()) / static_cast<double>(layer.weights[0].shape.volume());
    return layer.op->flops(layer.input_shapes, layer.shape) * weights * places(y) / places(Box(layer.shape));
  }
  std::vector<Shape> inputs;
  for (const auto& x : layer.at.x) inputs.push_back(local_shape(x, rank));
  return layer.op->flops(inputs, local_shape(layer.at.y, rank));
}

struct Bytes {
  double x = 0, y = 0, w = 0;
};

Bytes local_bytes(const LayerPlan& layer, int rank, double element) {
  Bytes bytes;
  const auto of = [&](const Layout& layout) { return static_cast<double>(layout.owned(rank).volume()) * element; };
  for (const auto& x : layer.at.x) bytes.x += of(x);
  for (const auto& w : layer.at.w) bytes.w += of(w);
  bytes.y = of(layer.at.y);
  return bytes;
}

/// Which number of a pass an item of traffic belongs to.
double PassCost::*part_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::halo: return &PassCost::halo;
    case Purpose::product: return &PassCost::product;
    case Purpose::input:
    case Purpose::output:
    case Purpose::stages: return &PassCost::redistribution;
    default: return &PassCost::collective;
  }
}

}  // namespace

bool splits_backward(const Schedule& schedule) {
  for (const auto& actions : schedule.stages)
    for (const auto& action : actions)
      if (action.kind == Action::Kind::backward_filter) return true;
  return false;
}

/// Of one rank, when so many of the unit inside (a node, at the level between nodes) use its links at once.
double Price::bandwidth(int number, double concurrent) const {
  const double ranks = number == 0 ? 1 : level(number - 1).ranks.value;
  const double share = std::min(1.0, level(number).links.value / std::min(concurrent, ranks));
  return level(number).bandwidth.value * share / level(number).fan_out.value;
}

Route Price::route(int rank, int below, int above) const {
  const int number = std::max(machine_.level_of(rank - below, rank), machine_.level_of(rank, rank + above));
  return {number, 2, bandwidth(number, std::max({below, above, 1}))};
}

std::vector<int> Price::partners(const PlannedTraffic& item, const Grid& grid, int rank) const {
  const int world_rank = grid.first_rank() + rank;
  std::vector<int> ranks;
  if (item.axes != 0) {
    for (const int each : grid.group(rank, item.axes)) ranks.push_back(grid.first_rank() + each);
  } else if (plan_.mirror && item.purpose == Purpose::replicas) {
    const int stage = plan_.stage_of_rank(world_rank);
    const Grid& twin = plan_.grids[plan_.grids.size() - 1 - static_cast<std::size_t>(stage)];
    ranks = {world_rank, twin.first_rank() + rank};
    std::sort(ranks.begin(), ranks.end());
  } else {
    for (int each = 0; each < plan_.ranks(); ++each) ranks.push_back(each);
  }
  return ranks;
}

/// How many of a unit's ranks use its links at once: those of one group share a ring, the others have their own.
double Price::rings(const std::vector<int>& group, const Grid& grid, int rank, int number) const {
  if (number == 0) return 1;
  const int unit = static_cast<int>(level(number - 1).ranks.value);
  const int first = rank / unit * unit, end = first + unit;
  const auto mine = std::count_if(group.begin(), group.end(), [&](int r) { return r >= first && r < end; });
  const int there = std::min(end, grid.first_rank() + grid.size()) - std::max(first, grid.first_rank());
  return std::max(1.0, static_cast<double>(there) / static_cast<double>(mine));
}

Route Price::route(const PlannedTraffic& item, const Grid& grid, int rank) const {
  const int world_rank = grid.first_rank() + rank;
  if (item.verb == Verb::exchange) return route(world_rank, item.below, item.above);
  const auto group = partners(item, grid, rank);
  auto ranks = static_cast<int>(group.size());
  int last = group.back();
  if (widened_ > 1 && (item.axes & 1U) != 0) {
    ranks *= widened_;
    last = group.front() + (last - group.front() + 1) * widened_ - 1;
  }
  const int number = machine_.level_of(group.front(), last);
  return {number, ranks, bandwidth(number, rings(group, grid, world_rank, number))};
}

double Price::exchange(const Traffic& traffic, const Route& route) const {
  if (traffic.messages == 0) return 0;
  const Level& at = level(route.level);
  const auto messages = static_cast<double>(traffic.messages), bytes = static_cast<double>(traffic.bytes);
  if (const auto found = at.verbs.find({Verb::exchange, 2}); found != at.verbs.end())
    return messages * found->second.seconds(bytes / messages);
  return messages * at.latency.value + bytes / route.bandwidth;
}

double Price::seconds(const PlannedTraffic& item, const Grid& grid, int rank) const {
  const Route way = route(item, grid, rank);
  if (item.verb == Verb::exchange) return exchange(item.traffic, way);
  const Level& at = level(way.level);
  const auto calls = static_cast<double>(item.traffic.messages), bytes = static_cast<double>(item.traffic.bytes);
  if (const auto found = at.verbs.find({item.verb, way.ranks}); found != at.verbs.end())
    return calls * found->second.seconds(bytes / calls);
  const double beta = 1 / way.bandwidth, gamma = 3 / machine_.memory_bandwidth.value;
  const auto algorithm = cheapest(item.verb, way.ranks, bytes / calls, at.latency.value, beta, gamma);
  return calls * collective_cost(item.verb, algorithm, way.ranks, bytes / calls).seconds(at.latency.value, beta, gamma);
}

LocalWork Price::local(const LayerPlan& layer, int rank) const {
  const double flops = local_flops(layer, rank);
  const auto [x, y, w] = local_bytes(layer, rank, static_cast<double>(size_of(plan_.workload.dtype)));
  const bool product = !layer.at.products.empty(), conv = layer.op->kind().starts_with("conv");
  auto curve = machine_.efficiency.find(product ? "product" : conv ? "conv" : "");
  if (curve == machine_.efficiency.end()) curve = machine_.efficiency.find("");
  return {flops, x + y + w, curve == machine_.efficiency.end() ? 1 : curve->second.at(flops)};
}

Price::Work Price::work(const LayerPlan& layer, int rank) const {
  if (!times_.empty())
    if (const auto found = times_.find(local_work(layer, rank, plan_.workload))) return {*found, true};
  const LocalWork local = this->local(layer, rank);
  const double once = machine_.kernel.value + std::max(local.flops / (machine_.arithmetic.value * local.share),
                                                       local.bytes / machine_.memory_bandwidth.value);
  LayerTimes times;
  if (!layer.inputs.empty()) times.forward = once;
  if (!plan_.workload.training) return {times, false};
  if (layer.needs_any_dx()) times.backward_data = once;
  if (layer.trains()) times.backward_filter = once;
  const bool contracts = !layer.at.products.empty() || layer.op->kind().starts_with("conv");
  if (layer.trains() && !contracts) {  // its sums are formed with those of the inputs' gradient
    times.backward_filter = 0;
    times.backward_data = once;
  }
  times.backward = times.backward_data + times.backward_filter;
  return {times, false};
}

LayerCost Price::on_rank(int index, int rank, bool of_smaller) const {
  const LayerPlan& layer = (of_smaller ? plan_.smaller : plan_.layers)[static_cast<std::size_t>(index)];
  const Grid& grid = plan_.grid_of(index);
  const auto [times, measured] = work(layer, rank);
  LayerCost cost;
  cost.measured = measured;
  cost.rank = rank;
  cost.forward.compute = times.forward;
  const double again = layer.recompute && plan_.workload.training ? times.forward : 0;
  cost.backward_data.compute = times.backward_data + again;
  cost.backward_filter.compute = times.backward_filter;
  if (!split_ && times.backward_data + times.backward_filter > 0) {  // both at once take less
    const double both = times.backward / (times.backward_data + times.backward_filter);
    cost.backward_data.compute = times.backward_data * both + again;
    cost.backward_filter.compute = times.backward_filter * both;
  }
  for (const auto& item : plan_.microbatch_traffic(index, grid.first_rank() + rank, of_smaller)) {
    if (item.pass == Pass::stages && item.verb == Verb::exchange) continue;  // transfer() has it
    PassCost& pass = item.pass == Pass::backward_data     ? cost.backward_data
                     : item.pass == Pass::backward_filter ? cost.backward_filter
                                                          : cost.forward;
    const double taken = seconds(item, grid, rank);
    double hidden = 0;
    const bool ahead = item.pass == Pass::forward || layer.at.dy_halo;  // else it is the adjoint: what came goes back
    if (item.purpose == Purpose::halo && ahead)
      hidden = std::min(taken * overlap(route(item, grid, rank)), pass.compute - pass.hidden);
    pass.hidden += hidden;
    pass.*part_of(item.purpose) += taken - hidden;
    if (item.purpose == Purpose::input) cost.inputs += taken;
  }
  return cost;
}

std::vector<int> Price::ranks(const Grid& grid) const {
  if (widened_ == 0) return representatives(grid);
  int inner = 0;
  for (int axis = 0; axis < grid.axes(); ++axis) inner = inner * grid.extent(axis) + grid.extent(axis) / 2;
  return inner == 0 ? std::vector{0} : std::vector{0, inner};
}

LayerCost Price::layer(int layer, bool of_smaller) const {
  LayerCost most;
  const auto total = [](const LayerCost& cost) {
    return cost.forward.total() + cost.backward_data.total() + cost.backward_filter.total();
  };
  for (const int rank : ranks(plan_.grid_of(layer)))
    if (const LayerCost cost = on_rank(layer, rank, of_smaller); rank == 0 || total(cost) > total(most)) most = cost;
  return most;
}

Sums Price::sums(int layer) const {
  Sums most;
  const Grid& grid = plan_.grid_of(layer);
  for (const int rank : ranks(grid)) {
    Sums sums;
    double overlapped = 0;
    for (const auto& item : plan_.step_traffic(layer, grid.first_rank() + rank)) {
      const double taken = seconds(item, grid, rank);
      (item.purpose == Purpose::sum        ? sums.seconds
       : item.purpose == Purpose::replicas ? sums.replicas
                                           : sums.after) += taken;
      if (item.purpose == Purpose::sum) overlapped += taken * overlap(route(item, grid, rank));
    }
    if (sums.seconds > 0) sums.overlap = overlapped / sums.seconds;
    if (sums.total() > most.total()) most = sums;
  }
  return most;
}

double Price::update(int group) const {
  const Grid& grid = plan_.grids[static_cast<std::size_t>(plan_.place(group))];
  const auto states = static_cast<double>(plan_.workload.optimizer.states().size());
  const auto element = static_cast<double>(size_of(master_dtype(plan_.workload.dtype)));
  double most = 0;
  for (const int rank : representatives(grid)) {
    Index elements = 0;
    for (const auto& bucket : plan_.buckets)
      if (plan_.layers[static_cast<std::size_t>(bucket.last())].group == group)
        elements += plan_.share(bucket, rank).extent();
    const auto found = times_.find(update_work(elements, plan_.workload));
    const double moved = static_cast<double>(elements) * element * (3 + 2 * states);  // w and states twice, dw once
    most = std::max(most, found ? found->forward : moved / machine_.memory_bandwidth.value);
  }
  return most;
}

StageTransfer Price::transfer(const Boundary& boundary) const {
  const auto element = size_of(plan_.workload.dtype);
  StageTransfer most;
  for (const auto* layout : {&boundary.from, &boundary.to})
    for (const int inside : representatives(layout->grid())) {
      const int rank = layout->grid().first_rank() + inside;
      const TransferPlan plan = boundary.transfer(rank, false);
      Traffic traffic;
      int below = 0, above = 0;
      for (const auto& transfer : layout == &boundary.from ? plan.sends : plan.recvs) {
        traffic += {1, transfer.box.volume() * element};
        below = std::max(below, rank - transfer.peer);
        above = std::max(above, transfer.peer - rank);
      }
      const Route way = route(rank, below, above);
      if (const double seconds = exchange(traffic, way); seconds > most.seconds) most = {seconds, overlap(way)};
    }
  return most;
}

}  // namespace partita
