#include "src/model/builtin/parts.hpp"

namespace partita {

Model mlp(const ModelSize& size) {
  Draft d("mlp", size, {.extent = 28, .channels = 1, .classes = 10});
  const std::vector<Index> widths = size.widths.empty() ? std::vector<Index>{1024, 1024} : size.widths;
  Value t = d.input(2);
  for (std::size_t i = 0; i < widths.size(); ++i)
    t = d.m.linear(fmt::format("fc{}", i + 1), t,
                   {.features = d.wide(widths[i]), .activation = Activation{Activation::Kind::relu}});
  d.m.softmax_cross_entropy("loss", d.m.linear("scores", t, {.features = d.size.classes}), d.size.labels);
  return d.m;
}

}  // namespace partita
