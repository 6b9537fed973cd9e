#include "partita/base/error.hpp"
#include "src/model/linear_layouts.hpp"

#include <cmath>

namespace partita {

std::string LinearOperator::describe() const {
  std::string text = fmt::format("{} features{}", linear_.features, linear_.bias ? "" : " no bias");
  if (linear_.activation) {
    text += fmt::format(", {}", name(linear_.activation->kind));
    if (linear_.activation->parameter != 0) text += fmt::format(" {}", linear_.activation->parameter);
  }
  return text;
}

Shape LinearOperator::output(std::span<const Shape> inputs) const {
  if (linear_.features < 1) fail("features is {}; it must be 1 or more", linear_.features);
  return {{'N', inputs[0]['N']}, {'C', linear_.features}};
}

std::vector<WeightSpec> LinearOperator::weights(std::span<const Shape> inputs) const {
  const auto& x = inputs[0];
  Shape w{{'F', linear_.features}};
  for (int d = 1; d < x.dims(); ++d) w.push_back({x.name(d), x.extent(d)});
  const auto fan_in = static_cast<double>(w.volume() / linear_.features);
  std::vector<WeightSpec> specs{{"weight", w, Init::normal, std::sqrt(2 / fan_in)}};
  if (linear_.bias)
    specs.push_back({.name = "bias", .shape = {{'F', linear_.features}}, .init = Init::zeros, .decay = false});
  return specs;
}

Kept LinearOperator::keeps() const {
  if (!linear_.activation) return {.x = true};
  const bool by_value = linear_.activation->differentiates_value();
  return {.x = true, .y = by_value, .z = !by_value};
}

OperatorLayouts LinearOperator::layouts(const LayoutRequest& request) const {
  return LinearLayouts(*this).best(request);
}

Layout LinearOperator::follow(const Layout& x, const Shape& output) const {
  return Operator::follow(x, output).with(output.find('C'), {});
}

double LinearOperator::flops(std::span<const Shape> inputs, const Shape& output) const {
  return 2.0 * static_cast<double>(output['N']) * static_cast<double>(weights(inputs)[0].shape.volume());
}

}  // namespace partita
