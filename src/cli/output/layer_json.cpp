#include "src/cli/output/layer_json.hpp"

namespace partita::cli {

Json to_json(const LayerCost& cost) {
  const auto of = [&](auto seconds) {
    return seconds(cost.forward) + seconds(cost.backward_data) + seconds(cost.backward_filter);
  };
  return {{"forward", cost.forward.total()},
          {"backward_data", cost.backward_data.total()},
          {"backward_filter", cost.backward_filter.total()},
          {"compute", of([](const PassCost& pass) { return pass.compute; })},
          {"communication", of([](const PassCost& pass) { return pass.communication(); })},
          {"sums", cost.grad_reduce},
          {"measured_kernels", cost.measured}};
}

Json to_json(const MemoryUse& memory) {
  Json classes;
  for (const auto each : {MemoryClass::weights, MemoryClass::gradients, MemoryClass::optimizer,
                          MemoryClass::activations, MemoryClass::halos, MemoryClass::workspace})
    classes[std::string(name(each))] = memory[each];
  return classes;
}

}  // namespace partita::cli
