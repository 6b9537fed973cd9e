#include "src/model/builtin/parts.hpp"

namespace partita {

Model dlrm(const ModelSize& size) {
  Draft d("dlrm", size, {.channels = 13, .classes = 2});
  const auto given = [](Index asked, Index published) { return asked == 0 ? published : asked; };
  const TablesSize& t = size.tables;
  const Index features = given(t.features, 16);
  // The categories come first, so that their vectors travel while the numbers are read.
  const Value categories =
      d.m.input("categories", {.channels = given(t.bag, 1), .length = given(t.tables, 26), .tokens = true});
  const Value rows = d.m.tables("tables", categories, {.rows = given(t.rows, 10000), .features = features});
  Value x = d.m.input("dense", {.channels = d.size.channels});
  const Activation relu{Activation::Kind::relu};
  int i = 0;
  for (const Index each : {512, 256, 64})
    x = d.m.linear(fmt::format("bottom{}", ++i), x, {.features = d.wide(each), .activation = relu});
  x = d.m.linear(fmt::format("bottom{}", ++i), x, {.features = features, .activation = relu});
  x = d.m.interaction("interaction", rows, x);
  i = 0;
  for (const Index each : {512, 256})
    x = d.m.linear(fmt::format("top{}", ++i), x, {.features = d.wide(each), .activation = relu});
  d.m.softmax_cross_entropy("loss", d.m.linear("scores", x, {.features = d.size.classes}), d.size.labels);
  return d.m;
}

}  // namespace partita
