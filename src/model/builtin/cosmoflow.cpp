#include "src/model/builtin/parts.hpp"

namespace partita {

Model cosmoflow(const ModelSize& size) {
  Draft d("cosmoflow", size, {.extent = 128, .channels = 4, .classes = 4});
  auto& m = d.m;
  auto t = d.input(3);
  for (int i = 0; i < 5; ++i) {
    t = m.conv(fmt::format("conv{}", i + 1), t, {.filters = d.wide(Index{32} << i), .kernel = 3, .padding = 1});
    t = m.leaky_relu(fmt::format("relu{}", i + 1), t, 0.3);
    t = m.max_pool(fmt::format("pool{}", i + 1), t, {.window = 2});
  }
  t = m.dropout("drop1", m.leaky_relu("relu6", m.linear("fc1", t, {.features = d.wide(128)}), 0.3));
  t = m.dropout("drop2", m.leaky_relu("relu7", m.linear("fc2", t, {.features = d.wide(64)}), 0.3));
  m.mean_squared_error("loss", m.tanh("scaled", m.linear("fc3", t, {.features = d.size.classes})));
  return m;
}

}  // namespace partita
