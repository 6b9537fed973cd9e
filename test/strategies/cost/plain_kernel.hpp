#pragma once

#include "partita/strategies/machine/machine.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "src/model/attention_operators.hpp"
#include "src/model/expert_operators.hpp"
#include "src/model/operators.hpp"

#include "test/strategies/cost/plain_ring.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace partita::test {

/// A second opinion on what a rank computes for a layer, for plans without measured kernels.
struct PlainKernel {
  const Plan& plan;
  const Machine& machine;

  static double volume(const Layout& layout, int rank) { return static_cast<double>(layout.owned(rank).volume()); }
  static bool is_conv(const LayerPlan& layer) {
    return dynamic_cast<const ConvOperator*>(layer.op.get()) != nullptr ||
           dynamic_cast<const ConvTransposeOperator*>(layer.op.get()) != nullptr;
  }
  template <class Op>
  static bool is_a(const LayerPlan& layer) {
    return dynamic_cast<const Op*>(layer.op.get()) != nullptr;
  }
  static bool is_pool(const LayerPlan& layer) { return dynamic_cast<const PoolOperator*>(layer.op.get()) != nullptr; }
  static bool is_product(const LayerPlan& layer) { return !layer->at.products.empty(); }
  static bool is_per_place(const LayerPlan& layer) {
    return dynamic_cast<const PlaceLinearOperator*>(layer.op.get()) != nullptr;
  }

  static bool contracts(const LayerPlan& layer) { return is_product(layer) || is_per_place(layer) || is_conv(layer); }

  /// A kernel's launch and its operations, or its bytes if these take longer.
  double seconds(const LayerPlan& layer, int rank, bool backward) const {
    if (backward ? layer.forwards_gradient && !layer.trains() : layer.computed_by_producer || layer.computed_by_reader)
      return 0;
    double x = 0, w = 0, y = volume(layer->at.y, rank);
    const double whole = 4 / static_cast<double>(size_of(plan.workload.dtype));  // an element of whole numbers
    for (std::size_t i = 0; i < layer->at.x.size(); ++i)
      x += volume(layer->at.x[i], rank) * (layer.op->reads_integers(static_cast<int>(i)) ? whole : 1);
    for (const auto& each : layer->at.w) w += volume(each, rank);
    if (is_a<EmbeddingOperator>(layer)) {
      // read the tokens, the rows that they name, and write y; read them and dy, and write the table
      y *= backward ? 1 : 2;
      w *= backward ? 1 : 0;
    } else if (const auto* tables = dynamic_cast<const TablesOperator*>(layer.op.get())) {
      // read the indices, the rows that they name, and write y; read them and dy, read and write the rows of a gradient
      // that is zero at first
      const Box table = layer->at.w[0].owned(rank);
      const double rows = x / whole * static_cast<double>(table.extent(1)) * static_cast<double>(table.extent(0)) /
                          static_cast<double>(tables->tables().rows);
      x += backward ? 2 * rows : rows;
      w *= backward ? 1 : 0;
    } else if (is_a<PlaceNormOperator>(layer) || is_a<GatedOperator>(layer) || is_a<InteractionOperator>(layer) ||
               is_a<CombineOperator>(layer)) {
      x *= backward ? 2 : 1;                          // read x and dy, and write dx
      if (backward && layer.adds_gradient) x *= 1.5;  // and read what dx is added to
    } else if (layer.op->is_loss()) {
      // cross-entropy reads x for the maxima and the sums, a difference reads x and the target; backward writes dx
      x *= is_a<DifferenceOperator>(layer) ? (backward ? 3 : 2) : is_a<DiceOperator>(layer) && !backward ? 1 : 2;
      y = 0;
    }
    if (is_norm(layer) && (plan.workload.training || is_group_norm(layer))) {
      // read x, then read x and write y; read x and dy, then read x and dy and write dx
      x *= backward ? 3 : 2;
      y *= backward ? 2 : 1;
      if (backward && layer.next_activation) y *= 2;  // and y, to see where ReLU passed dy
    } else if (dynamic_cast<const ActivationOperator*>(layer.op.get()) != nullptr && backward) {
      y *= 2;  // dy, and y or the x that it was computed from
    }
    const double operations = flops(layer, rank);
    const bool attends = is_a<AttentionOperator>(layer);
    auto found = machine.efficiency.find(is_product(layer) || is_per_place(layer) || attends ? KernelKind::product
                                         : is_conv(layer)                                    ? KernelKind::conv
                                                                                             : KernelKind::others);
    if (found == machine.efficiency.end()) found = machine.efficiency.find(KernelKind::others);
    double share = 1;
    if (found != machine.efficiency.end()) {
      share = found->second.curve.at(operations);
      if (contracts(layer) || attends) share *= std::min(1., narrowest(layer, rank) / found->second.width.value);
    }
    const double size = static_cast<double>(size_of(plan.workload.dtype)), kept = weights_of_pairs(layer, rank);
    const double bytes = (x + w + y + 2 * kept) * size;  // two products with the weights of attention
    const double times = attends ? kept > 0 ? 2 : 2.5 : is_a<InteractionOperator>(layer) ? 2 : 1;
    // Softmax reads and writes, and so does dropout. Their gradient reads both and the slopes, and writes.
    const double softmax = (drops(layer) ? 4 : backward ? 3 : 2) * kept * size / machine.memory_bandwidth.value;
    return softmax +
           (backward ? times : 1) * (machine.kernel.value + std::max(operations / (machine.arithmetic.value * share),
                                                                     bytes / machine.memory_bandwidth.value));
  }

  bool drops(const LayerPlan& layer) const {
    const auto* op = dynamic_cast<const AttentionOperator*>(layer.op.get());
    return op != nullptr && plan.workload.training && op->dropout() > 0;
  }
  /// How many weights of pairs of places whole attention keeps, without those after dropout.
  static double weights_of_pairs(const LayerPlan& layer, int rank) {
    const auto* op = dynamic_cast<const AttentionOperator*>(layer.op.get());
    if (op == nullptr || layer->at.algorithm != Algorithm::whole) return 0;
    const Shape& x = layer->input_shapes[0];
    return volume(layer->at.y, rank) / static_cast<double>(op->heads(x).dim) * static_cast<double>(x['L']);
  }

  static bool is_group_norm(const LayerPlan& layer) {
    return dynamic_cast<const GroupNormOperator*>(layer.op.get()) != nullptr;
  }
  static bool is_norm(const LayerPlan& layer) {
    return is_group_norm(layer) || dynamic_cast<const BatchNormOperator*>(layer.op.get()) != nullptr;
  }

  /// The smallest side of the blocks that a rank multiplies. A convolution multiplies its filters by the windows of x.
  static double narrowest(const LayerPlan& layer, int rank) {
    double sides[3];
    if (const auto* op = dynamic_cast<const AttentionOperator*>(layer.op.get())) {
      const HeadGroups heads = op->heads(layer->input_shapes[0]);
      sides[0] = sides[1] = static_cast<double>(layer->input_shapes[0]['L']);
      sides[2] = static_cast<double>(heads.dim);
    } else if (is_product(layer)) {
      const ProductPlan& p = layer->at.products[0];
      const double a = volume(p.a_used, rank), b = volume(p.b_used, rank), c = volume(p.c_made, rank);
      sides[0] = std::sqrt(a * c / b);
      sides[1] = std::sqrt(b * c / a);
      sides[2] = std::sqrt(a * b / c);
    } else {
      const Box y = layer->at.y.owned(rank);
      const auto filters = static_cast<double>(layer->at.w[0].owned(rank).extent(0));
      sides[0] = filters;
      sides[1] = volume(layer->at.w[0], rank) / filters;
      sides[2] = volume(layer->at.y, rank) / static_cast<double>(y.extent(1));
    }
    double least = std::numeric_limits<double>::infinity();
    for (const double side : sides) least = std::isnan(side) ? 1 : std::max(1., std::min(least, side));
    return least;
  }

  static double flops(const LayerPlan& layer, int rank) {
    if (is_product(layer)) {
      const ProductPlan& p = layer->at.products[0];
      return 2 * std::sqrt(volume(p.a_used, rank) * volume(p.b_used, rank) * volume(p.c_made, rank));
    }
    const Box y = layer->at.y.owned(rank);
    if (y.empty()) return 0;
    if (is_conv(layer) || is_per_place(layer)) {  // all operations, by the share of the weights and of the places
      const double places = volume(layer->at.y, rank) / static_cast<double>(y.extent(1));
      const double all = static_cast<double>(layer->shape.volume()) / static_cast<double>(layer->shape['C']);
      return layer.op->flops(layer->input_shapes, layer->shape) * places / all * volume(layer->at.w[0], rank) /
             static_cast<double>(layer->weights[0].shape.volume());
    }
    if (layer->at.algorithm == Algorithm::ring)
      return 4 * static_cast<double>(y.volume() / y.extent(2)) * PlainRing(layer, rank).pairs();
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
};

}  // namespace partita::test
