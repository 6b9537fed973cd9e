#include "src/model/builtin/parts.hpp"

namespace partita {

namespace {

Value twice(Draft& d, const std::string& name, Value x, Index first, Index second) {
  return d.conv_bn_relu(name + "_2", d.conv_bn_relu(name + "_1", x, d.wide(first), 3), d.wide(second), 3);
}

}  // namespace

Model unet3d(const ModelSize& size) {
  Draft d("unet3d", size, {.extent = 64, .channels = 1, .classes = 3});
  auto& m = d.m;
  constexpr int depth = 3;  // levels; each halves the extents
  std::vector<Value> skips;
  auto t = d.input(3);
  for (int level = 0; level < depth; ++level) {
    t = twice(d, fmt::format("down{}", level + 1), t, Index{32} << level, Index{64} << level);
    skips.push_back(t);
    t = m.max_pool(fmt::format("pool{}", level + 1), t, {.window = 2});
  }
  t = twice(d, "bottom", t, Index{32} << depth, Index{64} << depth);
  for (int level = depth; level-- > 0;) {
    const std::string name = fmt::format("up{}", level + 1);
    t = m.conv_transpose(name, t, {.filters = d.wide(Index{128} << level), .kernel = 2, .stride = 2});
    t = m.concatenate(name + "_skip", {skips[level], t});
    t = twice(d, name, t, Index{64} << level, Index{64} << level);
  }
  m.softmax_cross_entropy("loss", m.conv("scores", t, {.filters = d.size.classes}), d.size.labels);
  return m;
}

}  // namespace partita
