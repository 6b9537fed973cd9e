#include "src/model/builtin/parts.hpp"

namespace partita {

Model fashion_cnn(const ModelSize& size) {
  Draft d("fashion-cnn", size, {.extent = 28, .channels = 1, .classes = 10});
  auto& m = d.m;
  auto t = d.input(2);
  t = m.conv("conv1", t, {.filters = d.wide(32), .kernel = 3, .padding = 1, .bias = false});
  t = m.batch_norm("bn1", t, d.size.batch_norm);
  t = m.relu("relu1", t);
  t = m.max_pool("pool1", t, {.window = 2});
  t = m.conv("conv2", t, {.filters = d.wide(64), .kernel = 3, .padding = 1, .bias = false});
  t = m.batch_norm("bn2", t, d.size.batch_norm);
  t = m.relu("relu2", t);
  t = m.max_pool("pool2", t, {.window = 2});
  t = m.linear("fc1", t, {.features = d.wide(128)});
  t = m.relu("relu3", t);
  t = m.dropout("drop", t, {.rate = 0.2});
  t = m.linear("fc2", t, {.features = d.size.classes});
  m.softmax_cross_entropy("loss", t, d.size.labels);
  return m;
}

}  // namespace partita
