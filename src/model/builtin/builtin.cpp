#include "partita/model/builtin/builtin.hpp"

#include "partita/base/error.hpp"

#include <cmath>
#include <map>
#include <tuple>

namespace partita {

namespace {

const std::map<std::string, Model (*)(const ModelSize&)>& table() {
  static const std::map<std::string, Model (*)(const ModelSize&)> models{
      {"alexnet", alexnet},
      {"bert", bert},
      {"cosmoflow", cosmoflow},
      {"dlrm", dlrm},
      {"fashion-cnn", fashion_cnn},
      {"googlenet", googlenet},
      {"gpt", gpt},
      {"gpt-175b", gpt_175b},
      {"gpt-22b", gpt_22b},
      {"gpt2-small", gpt2_small},
      {"lenet5", lenet5},
      {"mesh-tangling", mesh_tangling},
      {"mlp", mlp},
      {"resnet18", resnet18},
      {"resnet50", resnet50},
      {"unet3d", unet3d},
      {"vgg16", vgg16},
      {"vit", vit},
  };
  return models;
}

/// Throws Error if the size has a number that the model does not know, or that no model can have.
void check_own_sizes(const std::string& name, const ModelSize& size) {
  constexpr Index most = Index{1} << 31;
  const bool reads = name.starts_with("gpt") || name == "bert", sees = name == "vit", recommends = name == "dlrm";
  const TransformerSize& t = size.transformer;
  const TablesSize& tables = size.tables;
  for (const auto& [what, value, known] : {std::tuple("layers", t.layers, reads || sees),
                                           {"hidden", t.hidden, reads || sees},
                                           {"heads", t.heads, reads || sees},
                                           {"sequence", t.sequence, reads},
                                           {"vocabulary", t.vocabulary, reads},
                                           {"patch", t.patch, sees},
                                           {"experts", t.experts.experts, reads || sees},
                                           {"tables", tables.tables, recommends},
                                           {"rows", tables.rows, recommends},
                                           {"features", tables.features, recommends},
                                           {"bag", tables.bag, recommends}}) {
    if (value < 0 || value > most) fail("{} is {}; it must be 1 to {}, or 0 for the model's own", what, value, most);
    if (value > 0 && !known) fail("{} has no {}; leave it out", name, what);
  }
  if (t.dropout != 0 && !reads && !sees) fail("{} has no dropout that a size sets; leave it out", name);
  if (t.tied && !reads) fail("{} has no embedding whose table its scores could share; leave it out", name);
  if (reads && (size.extent != 0 || size.channels != 0 || size.classes != 0))
    fail("{} has a sequence, hidden and vocabulary instead of an extent, channels and classes", name);
  if ((reads || sees) && size.width != 1) fail("{} takes hidden, not a width", name);
  if (recommends && size.extent != 0) fail("{} has no extent; leave it out", name);
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
  check_own_sizes(name, size);
  if (const auto found = table().find(name); found != table().end()) return found->second(size);
  const auto names = builtin_models();
  fail("there is no built-in model '{}'{}; there are {}", name, did_you_mean(name, names), quoted_list(names));
}

}  // namespace partita
