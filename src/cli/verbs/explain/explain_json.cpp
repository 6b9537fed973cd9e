#include "src/cli/verbs/explain/explain_json.hpp"

#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "src/cli/output/layer_json.hpp"
#include "strategies/traces/step_walk.hpp"

#include <array>

namespace partita::cli {

namespace {

template <class T>
Json texts(const std::vector<T>& all) {
  Json list = Json::array();
  for (const auto& each : all) list.push_back(each.print());
  return list;
}

Json weights_of(const LayerPlan& layer, bool training) {
  Json list = Json::array();
  for (std::size_t i = 0; i < layer->weights.size(); ++i) {
    const WeightSpec& weight = layer->weights[i];
    Json row{{"name", weight.name}, {"shape", weight.shape.print()}, {"layout", layer->at.w[i].print()}};
    if (!layer->rest[i].gather.empty()) row["rests"] = layer->rest[i].w.print();
    if (training && weight.trained) row["gradient"] = layer->at.dw[i].print();
    list.push_back(std::move(row));
  }
  return list;
}

/// The ways to run a layer or a product that were considered; the first one is taken.
Json ways_of(const std::vector<Alternative>& alternatives, DType dtype) {
  Json list = Json::array();
  for (const Alternative& way : alternatives) {
    list.push_back({{"algorithm", name(way.algorithm, "whole")},
                    {"operations", way.flops},
                    {"bytes", way.words * static_cast<double>(size_of(dtype))}});
    if (way.balanced) list.back()["balanced"] = true;
  }
  return list;
}

Json products_of(const LayerPlan& layer, DType dtype) {
  static constexpr std::array names{"y", "dx", "dw"};
  Json list = Json::array();
  for (std::size_t i = 0; i < layer->at.products.size(); ++i) {
    const ProductPlan& product = layer->at.products[i];
    list.push_back({{"of", names[i]},
                    {"multiplies", {product.a_used.print(), product.b_used.print()}},
                    {"ways", ways_of(product.alternatives, dtype)}});
  }
  return list;
}

Json steps_of(const std::vector<LayerPlan::Steps>& all) {
  Json list = Json::array();
  for (const auto& steps : all)
    if (!steps.empty())
      list.push_back({{"from", steps.front().from.print()}, {"to", steps.back().to.print()}, {"by", print(steps)}});
  return list;
}

Json traffic_of(const Plan& plan, int layer, int rank) {
  Json list = Json::array();
  for (const auto& item : layer_traffic(plan, layer, rank))
    list.push_back({{"what", item.role},
                    {"verb", name(item.verb)},
                    {"axes", item.verb == Verb::exchange ? "" : plan.grid_of(layer).print(item.axes)},
                    {"messages", item.traffic.messages},
                    {"bytes", item.traffic.bytes}});
  return list;
}

Json layer_of(const Explained& of, int index) {
  const Plan& plan = of.plan;
  const LayerPlan& layer = plan.layers[index];
  const bool training = plan.workload.training;
  Json row{{"name", layer.name},
           {"kind", layer.op->kind()},
           {"description", layer.op->describe()},
           {"stage", plan.stage_of(index)},
           {"shape", layer->shape.print()},
           {"x", texts(layer->at.x)},
           {"y", layer->y.print()},
           {"weights", weights_of(layer, training)},
           {"ways", ways_of(layer->at.alternatives, plan.workload.dtype)},
           {"products", products_of(layer, plan.workload.dtype)},
           {"inputs", steps_of(layer->redistribute_input)},
           {"traffic", traffic_of(plan, index, of.rank)},
           {"memory", to_json(layer_memory(plan, index, of.rank))},
           {"recompute", layer.recompute},
           {"notes", layer->notes}};
  row["reads"] = Json::array();
  for (const int input : layer.inputs) row["reads"].push_back(plan.layers[input].name);
  if (training) row["dx"] = texts(layer->at.dx);
  if (layer->at.x_halo) row["halo_x"] = layer->at.x_halo->widths();
  if (of.cost) row["cost"] = to_json(of.cost->layers[index]);
  return row;
}

}  // namespace

Json to_json(const Explained& of) {
  const Plan& plan = of.plan;
  Json grids = Json::array();
  for (const Grid& grid : plan.grids) grids.push_back(grid.print());
  const Traffic traffic = rank_traffic(plan, of.rank).counted;
  const MemoryPeak memory = peak_memory(plan, of.rank);
  Json json{{"subject", "explain"},
            {"model", plan.model},
            {"machine", of.machine},
            {"batch", plan.workload.batch},
            {"dtype", name(plan.workload.dtype)},
            {"training", plan.workload.training},
            {"ranks", plan.ranks()},
            {"rank", of.rank},
            {"grids", std::move(grids)},
            {"microbatches", plan.microbatches},
            {"schedule", plan.schedule.print()},
            {"notes", of.notes},
            {"seconds", of.cost ? Json(of.cost->seconds) : Json()},
            {"messages", traffic.messages},
            {"bytes", traffic.bytes},
            {"leaves_node", Json::array()},
            {"operations", rank_flops(plan, of.rank)},
            {"memory", {{"predicted", memory.total}, {"classes", to_json(memory.each)}}},
            {"layers", Json::array()}};
  for (const auto& [along, bytes] : of.leaves_node) json["leaves_node"].push_back({{"along", along}, {"bytes", bytes}});
  for (int layer = 0; layer < static_cast<int>(plan.layers.size()); ++layer)
    json["layers"].push_back(layer_of(of, layer));
  return json;
}

}  // namespace partita::cli
