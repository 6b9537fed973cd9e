#pragma once

#include "partita/base/collective_algorithm.hpp"
#include "partita/strategies/cost/collective_cost.hpp"
#include "partita/strategies/cost/estimate.hpp"
#include "partita/strategies/plan/traffic.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace partita::test {

/// Prices a plan as cost_model.hpp says it, rank by rank and item by item: nothing shared, nothing left out, nothing kept. Of
/// plans without measured kernels.
class PlainPrice {
 public:
  PlainPrice(const Plan& plan, const Machine& machine) : plan_(plan), machine_(machine) {}

  /// Seconds of all three passes of a layer's microbatch, on the representative that takes longest.
  double layer(int index, bool of_remainder) const {
    const Grid& grid = plan_.grid_of(index);
    double most = 0;
    for (const int rank : representatives(grid)) most = std::max(most, layer(index, of_remainder, grid, rank));
    return most;
  }

  /// Seconds of the gradient sums that a layer completes, where they and all that comes once a step take longest.
  double sums(int index) const {
    const Grid& grid = plan_.grid_of(index);
    double most = 0, sums = 0;
    for (const int rank : representatives(grid)) {
      double all = 0, mine = 0;
      for (const auto& item : step_traffic(plan_, index, grid.first_rank() + rank)) {
        all += seconds(item, grid, rank);
        if (item.purpose == Purpose::sum) mine += seconds(item, grid, rank);
      }
      if (all > most) {
        most = all;
        sums = mine;
      }
    }
    return sums;
  }

 private:
  struct Way {
    int level = 0, ranks = 2;
    double bandwidth = 0;
  };

  double layer(int index, bool of_remainder, const Grid& grid, int rank) const {
    const auto& layer = (of_remainder ? plan_.remainder_layers : plan_.layers)[static_cast<std::size_t>(index)];
    const bool training = plan_.workload.training, contracts = !layer->at.products.empty() || is_conv(layer);
    const double once = kernel(layer, rank), again = training && layer.recompute && !layer.inputs.empty() ? once : 0;
    const bool data = training && (layer.needs_any_dx() || (layer.trains() && !contracts));
    const double compute[] = {layer.inputs.empty() ? 0 : once, (data ? once : 0) + again,
                              training && layer.trains() && contracts ? once : 0};
    const double rooms[] = {compute[0], compute[1] - again, compute[2], again};
    double hidden[] = {0, 0, 0, 0}, all = compute[0] + compute[1] + compute[2];
    for (const auto& item : microbatch_traffic(plan_, index, grid.first_rank() + rank, of_remainder)) {
      if (item.pass == Pass::stages && item.verb == Verb::exchange) continue;
      const int pass = item.pass == Pass::backward_data ? 1 : item.pass == Pass::backward_filter ? 2 : 0;
      const double taken = seconds(item, grid, rank);
      all += taken;
      const std::string_view kind = layer.op->kind();
      const bool pool = kind == "max_pool" || kind == "average_pool", dw = compute[2] > 0 && !in_halves();
      int behind = -1;  // what the executor goes on with
      if (item.role == "halo x" && (kind == "conv" || pool)) behind = pass == 0 ? 0 : 3;
      if (item.role == "halo dy" && dw) behind = 2;
      if (item.role == "halo dx" && pool) behind = 1;
      if (behind < 0) continue;
      const double overlap = level(way(item, grid, rank).level).overlap.value;
      const double less = std::min(taken * overlap, rooms[behind] - hidden[behind]);
      hidden[behind] += less;
      all -= less;
    }
    return all;
  }

  /// True if the gradients of inputs and of weights are actions of their own.
  bool in_halves() const {
    for (const auto& actions : plan_.schedule.stages)
      for (const Action& action : actions)
        if (action.kind == Action::Kind::backward_filter) return true;
    return false;
  }
  static bool is_conv(const LayerPlan& layer) { return layer.op->kind().starts_with("conv"); }
  static double volume(const Layout& layout, int rank) { return static_cast<double>(layout.owned(rank).volume()); }

  double kernel(const LayerPlan& layer, int rank) const {
    double elements = volume(layer->at.y, rank);
    for (const auto& x : layer->at.x) elements += volume(x, rank);
    for (const auto& w : layer->at.w) elements += volume(w, rank);
    const double operations = flops(layer, rank);
    auto curve = machine_.efficiency.find(!layer->at.products.empty() ? "product" : is_conv(layer) ? "conv" : "");
    if (curve == machine_.efficiency.end()) curve = machine_.efficiency.find("");
    const double share = curve == machine_.efficiency.end() ? 1 : curve->second.at(operations);
    const double bytes = elements * static_cast<double>(size_of(plan_.workload.dtype));
    return machine_.kernel.value +
           std::max(operations / (machine_.arithmetic.value * share), bytes / machine_.memory_bandwidth.value);
  }

  static double flops(const LayerPlan& layer, int rank) {
    if (!layer->at.products.empty()) {
      const ProductPlan& p = layer->at.products[0];
      return 2 * std::sqrt(volume(p.a_used, rank) * volume(p.b_used, rank) * volume(p.c_made, rank));
    }
    const Box y = layer->at.y.owned(rank);
    if (y.empty()) return 0;
    if (is_conv(layer)) {  // all of its operations, by the share of the weights and of the places
      const double places = volume(layer->at.y, rank) / static_cast<double>(y.extent(1));
      const double all = static_cast<double>(layer->shape.volume()) / static_cast<double>(layer->shape['C']);
      return layer.op->flops(layer->input_shapes, layer->shape) * places / all * volume(layer->at.w[0], rank) /
             static_cast<double>(layer->weights[0].shape.volume());
    }
    std::vector<Shape> inputs;
    for (const auto& x : layer->at.x) inputs.push_back(local(x, rank));
    return layer.op->flops(inputs, local(layer->at.y, rank));
  }

  static Shape local(const Layout& layout, int rank) {
    Shape shape;
    for (int d = 0; d < layout.shape().dims(); ++d)
      shape.push_back({layout.shape().name(d), layout.owned(rank).extent(d)});
    return shape;
  }

  const Level& level(int number) const { return machine_.levels[static_cast<std::size_t>(number)]; }
  int unit(int number) const { return static_cast<int>(level(number).ranks.value); }
  double bandwidth(int number, double concurrent) const {
    const double sharing = std::min(concurrent, number == 0 ? 1. : unit(number - 1));
    return level(number).bandwidth.value * std::min(1., level(number).links.value / sharing) /
           level(number).fan_out.value;
  }

  Way way(const PlannedTraffic& item, const Grid& grid, int rank) const {
    const int at = grid.first_rank() + rank;
    if (item.verb == Verb::exchange) {
      const int number = std::max(machine_.level_of(at - item.below, at), machine_.level_of(at, at + item.above));
      return {number, 2, bandwidth(number, std::max({item.below, item.above, 1}))};
    }
    std::vector<int> group;
    if (item.axes != 0)
      for (const int each : grid.group(rank, item.axes)) group.push_back(grid.first_rank() + each);
    else if (plan_.second_replica && item.purpose == Purpose::replicas)
      group = {
          at,
          plan_.grids[plan_.grids.size() - 1 - static_cast<std::size_t>(plan_.stage_of_rank(at))].first_rank() + rank};
    else
      for (int each = 0; each < plan_.ranks(); ++each) group.push_back(each);
    std::sort(group.begin(), group.end());
    const int number = machine_.level_of(group.front(), group.back()), ranks = static_cast<int>(group.size());
    if (number == 0) return {number, ranks, bandwidth(number, 1)};
    const int first = at / unit(number - 1) * unit(number - 1), end = first + unit(number - 1);
    int mine = 0, there = 0;
    for (const int each : group) mine += each >= first && each < end ? 1 : 0;
    for (int each = 0; each < grid.size(); ++each)
      there += grid.first_rank() + each >= first && grid.first_rank() + each < end ? 1 : 0;
    return {number, ranks, bandwidth(number, std::max(1., static_cast<double>(there) / mine))};
  }

  double seconds(const PlannedTraffic& item, const Grid& grid, int rank) const {
    const Way way = this->way(item, grid, rank);
    const Level& at = level(way.level);
    const auto calls = static_cast<double>(item.traffic.messages), bytes = static_cast<double>(item.traffic.bytes);
    if (const auto found = at.verbs.find({item.verb, way.ranks}); found != at.verbs.end())
      return calls * found->second.seconds(bytes / calls);
    if (item.verb == Verb::exchange) return calls * at.latency.value + bytes / way.bandwidth;
    double least = std::numeric_limits<double>::infinity();
    for (const CollectiveAlgorithm algorithm : algorithms(item.verb))
      least = std::min(least, collective_cost(item.verb, algorithm, way.ranks, bytes / calls)
                                  .seconds(at.latency.value, 1 / way.bandwidth, 3 / machine_.memory_bandwidth.value));
    return calls * least;
  }

  const Plan& plan_;
  const Machine& machine_;
};

}  // namespace partita::test
