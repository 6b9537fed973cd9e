#include "partita/model/builtin/builtin.hpp"

#include "partita/base/error.hpp"

#include <cmath>
#include <map>

namespace partita {

namespace {

const std::map<std::string, Model (*)(const ModelSize&)>& table() {
  static const std::map<std::string, Model (*)(const ModelSize&)> models{
      {"alexnet", alexnet},
      {"cosmoflow", cosmoflow},
      {"fashion-cnn", fashion_cnn},
      {"googlenet", googlenet},
      {"lenet5", lenet5},
      {"mesh-tangling", mesh_tangling},
      {"mlp", mlp},
      {"resnet18", resnet18},
      {"resnet50", resnet50},
      {"unet3d", unet3d},
      {"vgg16", vgg16},
  };
  return models;
}

}  // namespace

std::vector<std::string> builtin_models() {
  std::vector<std::string> names;
  for (const auto& [name, make] : table()) names.push_back(name);
  return names;
}

Model builtin_model(const std::string& name, const ModelSize& size) {
  if (size.extent < 0 || size.channels < 0 || size.classes < 0)
    fail("a model's extent, channels and classes must be 1 or more, or 0 for its own values; not {}, {} and {}",
         size.extent, size.channels, size.classes);
  constexpr Index most = Index{1} << 31;
  constexpr double widest = 1 << 20;
  for (const Index each : {size.extent, size.channels, size.classes})
    if (each > most) fail("a model's extent, channels and classes must be {} or less, not {}", most, each);
  if (!(size.width > 0) || size.width > widest)
    fail("a model's width is {}; it must be more than 0 and at most {}", size.width, widest);
  for (const Index width : size.widths)
    if (width < 1 || width > most) fail("a hidden layer's width is {}; it must be 1 to {}", width, most);
  if (!size.widths.empty() && name != "mlp")
    fail("only mlp takes widths of its layers; the layers of {} scale together, by its width", name);
  if (const auto found = table().find(name); found != table().end()) return found->second(size);
  const auto names = builtin_models();
  fail("there is no built-in model '{}'{}; there are {}", name, did_you_mean(name, names), quoted_list(names));
}

}  // namespace partita
