#include "src/model/builtin/parts.hpp"

namespace partita {

namespace {

/// Numbers of filters: 1x1 branch; 3x3 branch with its reduction; 5x5 branch with its reduction; pooling branch.
struct Inception {
  const char* name;
  Index one, reduce3, three, reduce5, five, pooled;
};

Value inception(Draft& d, Value x, const Inception& block) {
  const std::string name = block.name;
  const Value one = d.conv_bn_relu(name + "_1x1", x, d.wide(block.one), 1);
  Value three = d.conv_bn_relu(name + "_3x3_reduce", x, d.wide(block.reduce3), 1);
  three = d.conv_bn_relu(name + "_3x3", three, d.wide(block.three), 3);
  Value five = d.conv_bn_relu(name + "_5x5_reduce", x, d.wide(block.reduce5), 1);
  five = d.conv_bn_relu(name + "_5x5", five, d.wide(block.five), 5);
  Value pooled = d.m.max_pool(name + "_pool", x, {.window = 3, .stride = 1, .padding = 1});
  pooled = d.conv_bn_relu(name + "_pool_proj", pooled, d.wide(block.pooled), 1);
  return d.m.concatenate(name, {one, three, five, pooled});
}

}  // namespace

Model googlenet(const ModelSize& size) {
  Draft d("googlenet", size, {.extent = 224, .channels = 3, .classes = 1000});
  auto& m = d.m;
  const auto halve = [&](const std::string& name, Value x) {
    return m.max_pool(name, x, {.window = 3, .stride = 2, .padding = {{1, 1}, {1, 1}}});
  };
  auto t = d.conv_bn_relu("conv1", d.input(2), d.wide(64), 7, 2);
  t = halve("pool1", t);
  t = d.conv_bn_relu("conv2_reduce", t, d.wide(64), 1);
  t = halve("pool2", d.conv_bn_relu("conv2", t, d.wide(192), 3));
  for (const Inception& block : {Inception{"3a", 64, 96, 128, 16, 32, 32}, {"3b", 128, 128, 192, 32, 96, 64}})
    t = inception(d, t, block);
  t = halve("pool3", t);
  for (const Inception& block : {Inception{"4a", 192, 96, 208, 16, 48, 64},
                                 {"4b", 160, 112, 224, 24, 64, 64},
                                 {"4c", 128, 128, 256, 24, 64, 64},
                                 {"4d", 112, 144, 288, 32, 64, 64},
                                 {"4e", 256, 160, 320, 32, 128, 128}})
    t = inception(d, t, block);
  t = halve("pool4", t);
  for (const Inception& block : {Inception{"5a", 256, 160, 320, 32, 128, 128}, {"5b", 384, 192, 384, 48, 128, 128}})
    t = inception(d, t, block);
  t = m.dropout("drop", m.global_average_pool("pool5", t), {.rate = 0.4});
  m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = d.size.classes}), d.size.labels);
  return m;
}

}  // namespace partita
