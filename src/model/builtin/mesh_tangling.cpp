#include "src/model/builtin/parts.hpp"

namespace partita {

Model mesh_tangling(const ModelSize& size) {
  Draft d("mesh-tangling", size, {.extent = 1024, .channels = 18, .classes = 2});
  const std::vector<Index> filters{128, 160, 192, 256, 384, 128};
  const int convolutions = d.size.extent >= 2048 ? 5 : 3;
  auto t = d.input(2);
  for (std::size_t block = 0; block < filters.size(); ++block)
    for (int i = 0; i < convolutions; ++i)
      t = d.conv_bn_relu(fmt::format("conv{}_{}", block + 1, i + 1), t, d.wide(filters[block]), block == 0 ? 5 : 3,
                         i == 0 ? 2 : 1);
  d.m.softmax_cross_entropy("loss", d.m.conv("scores", t, {.filters = d.size.classes}), d.size.labels);
  return d.m;
}

}  // namespace partita
