#include "src/model/builtin/parts.hpp"

namespace partita {

Model alexnet(const ModelSize& size) {
  Draft d("alexnet", size, {.extent = 224, .channels = 3, .classes = 1000});
  auto& m = d.m;
  auto t = d.input(2);
  t = d.conv_relu("conv1", t, {.filters = d.wide(64), .kernel = 11, .stride = 4, .padding = 2});
  t = m.max_pool("pool1", t, {.window = 3, .stride = 2});
  t = d.conv_relu("conv2", t, {.filters = d.wide(192), .kernel = 5, .padding = 2});
  t = m.max_pool("pool2", t, {.window = 3, .stride = 2});
  t = d.conv_relu("conv3", t, {.filters = d.wide(384), .kernel = 3, .padding = 1});
  t = d.conv_relu("conv4", t, {.filters = d.wide(256), .kernel = 3, .padding = 1});
  t = d.conv_relu("conv5", t, {.filters = d.wide(256), .kernel = 3, .padding = 1});
  t = m.max_pool("pool5", t, {.window = 3, .stride = 2});
  t = d.linear_relu("fc6", m.dropout("drop6", t), d.wide(4096));
  t = d.linear_relu("fc7", m.dropout("drop7", t), d.wide(4096));
  m.softmax_cross_entropy("loss", m.linear("fc8", t, {.features = d.size.classes}), d.size.labels);
  return m;
}

}  // namespace partita
