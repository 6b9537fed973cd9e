#include "src/model/builtin/parts.hpp"

namespace partita {

Model vgg16(const ModelSize& size) {
  Draft d("vgg16", size, {.extent = 224, .channels = 3, .classes = 1000});
  auto& m = d.m;
  auto t = d.input(2);
  const std::vector<std::vector<Index>> stages{{64, 64}, {128, 128}, {256, 256, 256}, {512, 512, 512}, {512, 512, 512}};
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    for (std::size_t i = 0; i < stages[stage].size(); ++i)
      t = d.conv_relu(fmt::format("conv{}_{}", stage + 1, i + 1), t,
                      {.filters = d.wide(stages[stage][i]), .kernel = 3, .padding = 1});
    t = m.max_pool(fmt::format("pool{}", stage + 1), t, {.window = 2});
  }
  t = m.dropout("drop6", d.linear_relu("fc6", t, d.wide(4096)));
  t = m.dropout("drop7", d.linear_relu("fc7", t, d.wide(4096)));
  m.softmax_cross_entropy("loss", m.linear("fc8", t, {.features = d.size.classes}), d.size.labels);
  return m;
}

}  // namespace partita
