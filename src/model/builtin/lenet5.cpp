#include "src/model/builtin/parts.hpp"

namespace partita {

Model lenet5(const ModelSize& size) {
  Draft d("lenet5", size, {.extent = 32, .channels = 1, .classes = 10});
  auto& m = d.m;
  auto t = d.input(2);
  t = m.tanh("tanh1", m.conv("conv1", t, {.filters = d.wide(6), .kernel = 5}));
  t = m.average_pool("pool1", t, {.window = 2});
  t = m.tanh("tanh2", m.conv("conv2", t, {.filters = d.wide(16), .kernel = 5}));
  t = m.average_pool("pool2", t, {.window = 2});
  t = m.tanh("tanh3", m.linear("fc1", t, {.features = d.wide(120)}));
  t = m.tanh("tanh4", m.linear("fc2", t, {.features = d.wide(84)}));
  m.softmax_cross_entropy("loss", m.linear("fc3", t, {.features = d.size.classes}), d.size.labels);
  return m;
}

}  // namespace partita
