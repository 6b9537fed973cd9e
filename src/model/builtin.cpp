#include "partita/model/builtin.hpp"

#include "partita/base/error.hpp"

namespace partita {

Model fashion_cnn() {
  Model m("fashion-cnn");
  auto t = m.input("image", {.channels = 1, .spatial = {28, 28}});
  t = m.conv("conv1", t, {.filters = 32, .kernel = 3, .padding = 1, .bias = false});
  t = m.batch_norm("bn1", t);
  t = m.relu("relu1", t);
  t = m.max_pool("pool1", t, {.window = 2});
  t = m.conv("conv2", t, {.filters = 64, .kernel = 3, .padding = 1, .bias = false});
  t = m.batch_norm("bn2", t);
  t = m.relu("relu2", t);
  t = m.max_pool("pool2", t, {.window = 2});
  t = m.linear("fc1", t, {.features = 128});
  t = m.relu("relu3", t);
  t = m.dropout("drop", t, {.rate = 0.2});
  t = m.linear("fc2", t, {.features = 10});
  m.softmax_cross_entropy("loss", t);
  return m;
}

std::vector<std::string> builtin_models() { return {"fashion-cnn"}; }

Model builtin_model(const std::string& name) {
  if (name == "fashion-cnn") return fashion_cnn();
  const auto names = builtin_models();
  fail("there is no built-in model '{}'{}; there are {}", name, did_you_mean(name, names), quoted_list(names));
}

}  // namespace partita
