#include "src/cli/verbs/compare/compare_json.hpp"

#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "src/cli/output/causes.hpp"
#include "src/cli/output/layer_json.hpp"
#include "src/cli/verbs/compare/verdict.hpp"
#include "src/train/kernels/kernel_choice.hpp"

#include <algorithm>
#include <thread>

namespace partita::cli {

namespace {

Json layers_of(const Compared& one) {
  Json layers = Json::array();
  for (std::size_t i = 0; i < one.cost.layers.size(); ++i) {
    const LayerCost& cost = one.cost.layers[i];
    const LayerPlan& layer = one.plan.layers[i];
    const int stage = one.plan.stage_of(static_cast<int>(i));
    const int rank = one.plan.grids[stage].first_rank();
    Traffic traffic;
    for (const auto& item : layer_traffic(one.plan, static_cast<int>(i), rank)) traffic += item.traffic;
    Json row{{"name", layer.name}, {"kind", layer.op->kind()}, {"stage", stage}};
    row.update(to_json(cost));
    row.update({{"messages", traffic.messages},
                {"bytes", traffic.bytes},
                {"memory", layer_memory(one.plan, static_cast<int>(i), rank).total()}});
    layers.push_back(std::move(row));
  }
  return layers;
}

Json timeline_of(const Simulation& simulation) {
  Json stages = Json::array();
  for (const auto& spans : simulation.stages) {
    Json list = Json::array();
    for (const auto& span : spans)
      list.push_back({{"action", span.action.print()}, {"start", span.start}, {"end", span.end}});
    stages.push_back(std::move(list));
  }
  return stages;
}

Json memory_of(const Holding& held, Index limit) {
  return {{"predicted", held.memory.total},
          {"limit", limit > 0 ? Json(limit) : Json()},
          {"missing", held.missing},
          {"rank", held.rank},
          {"classes", to_json(held.memory.each)}};
}

Json remedies_of(const std::vector<Remedy>& remedies) {
  Json list = Json::array();
  for (const auto& each : remedies)
    list.push_back({{"change", each.change},
                    {"batch", each.batch},
                    {"ranks", each.ranks},
                    {"seconds", each.seconds},
                    {"memory", each.held},
                    {"missing", each.missing}});
  return list;
}

}  // namespace

Json to_json(const Options& options, const MachineFiles& files, const std::vector<Compared>& all, Index limit) {
  Json json{{"subject", "compare"},
            {"machine", files.machine.name},
            {"model", all.front().plan.model},
            {"batch", options.trainer.batch},
            {"dtype", name(options.trainer.dtype)}};
  json["conditions"] = {
      {"processor", KernelCache::processor()},
      {"cores", std::thread::hardware_concurrency()},
      {"threads", options.trainer.threads},
      {"backend", options.trainer.backend},
      {"measured", std::any_of(all.begin(), all.end(), [](const auto& one) { return one.measured.has_value(); })}};
  json["strategies"] = Json::array();
  for (const auto& one : all) {
    Json parts;
    for (const auto& [part, seconds] : named_parts(one.cost.parts)) parts[part] = seconds;
    Json row{{"name", one.name},
             {"file", one.name},
             {"ranks", one.plan.ranks()},
             {"seconds", one.cost.seconds},
             {"parts", parts},
             {"images_per_second", one.cost.samples_per_second},
             {"efficiency", one.efficiency},
             {"bubble_rate", one.cost.bubble_rate},
             {"hidden", one.cost.parts.hidden},
             {"messages", one.cost.traffic.messages},
             {"bytes", one.cost.traffic.bytes},
             {"sent", one.cost.sent},
             {"memory", memory_of(one.held, limit)}};
    for (const Cause& each : large_causes(one.plan, one.cost))
      row["causes"].push_back({{"what", each.what}, {"seconds", each.seconds}});
    if (!one.chosen.empty()) row["chosen"] = one.chosen;
    if (!one.fits()) row["remedies"] = remedies_of(one.remedies);
    if (one.measured) {
      row["measured"] = {{"seconds", one.measured->median},
                         {"spread", one.measured->spread},
                         {"repeats", one.measured->steps},
                         {"disturbed", one.measured->disturbed},
                         {"memory", one.measured->memory.total}};
      row["error"] = one.error();
    }
    row["layers"] = layers_of(one);
    row["timeline"] = timeline_of(one.cost.simulation);
    json["strategies"].push_back(std::move(row));
  }
  if (const Fastest first = fastest(all); !first.names.empty())
    json["fastest"] = {{"names", first.names}, {"by", first.measured ? "measured" : "predicted"}};
  if (const auto texts = warnings(all); !texts.empty()) json["warnings"] = texts;
  return json;
}

}  // namespace partita::cli
