#include "src/model/builtin/parts.hpp"

namespace partita {

namespace {

/// x itself, or a 1x1 convolution of x if the block changes extents or channels.
Value shortcut(Draft& d, const std::string& name, Value x, bool changes, Index filters, Index stride) {
  return changes ? d.conv_bn(name + "_shortcut", x, filters, 1, stride) : x;
}

/// Two 3x3 convolutions with a shortcut.
Value basic(Draft& d, const std::string& name, Value x, Index filters, Index stride, bool changes) {
  Value y = d.conv_bn_relu(name + "_1", x, filters, 3, stride);
  y = d.conv_bn(name + "_2", y, filters, 3);
  return d.m.relu(name, d.m.add(name + "_add", y, shortcut(d, name, x, changes, filters, stride)));
}

/// Convolutions 1x1, 3x3 and 1x1 (with four times the filters), with a shortcut.
Value bottleneck(Draft& d, const std::string& name, Value x, Index filters, Index stride, bool changes) {
  Value y = d.conv_bn_relu(name + "_1", x, filters, 1);
  y = d.conv_bn_relu(name + "_2", y, filters, 3, stride);
  y = d.conv_bn(name + "_3", y, 4 * filters, 1);
  return d.m.relu(name, d.m.add(name + "_add", y, shortcut(d, name, x, changes, 4 * filters, stride)));
}

template <class Block>
Model resnet(const char* name, const ModelSize& size, const std::vector<int>& blocks, Block&& block,
             bool first_changes) {
  Draft d(name, size, {.extent = 224, .channels = 3, .classes = 1000});
  auto& m = d.m;
  auto t = d.conv_bn_relu("conv1", d.input(2), d.wide(64), 7, 2);
  t = m.max_pool("pool1", t, {.window = 3, .stride = 2, .padding = 1});
  for (std::size_t stage = 0; stage < blocks.size(); ++stage)
    for (int i = 0; i < blocks[stage]; ++i)
      t = block(d, fmt::format("res{}{}", stage + 2, static_cast<char>('a' + i)), t, d.wide(Index{64} << stage),
                stage > 0 && i == 0 ? 2 : 1, i == 0 && (stage > 0 || first_changes));
  t = m.global_average_pool("pool5", t);
  m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = d.size.classes}), d.size.labels);
  return m;
}

}  // namespace

Model resnet18(const ModelSize& size) { return resnet("resnet18", size, {2, 2, 2, 2}, basic, false); }
Model resnet50(const ModelSize& size) { return resnet("resnet50", size, {3, 4, 6, 3}, bottleneck, true); }

}  // namespace partita
