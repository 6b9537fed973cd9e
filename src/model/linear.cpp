#include "partita/base/error.hpp"
#include "src/model/linear_layouts.hpp"

#include <cmath>

namespace partita {

double deviation_of(const Linear& linear, Index fan_in) {
  return linear.deviation == 0 ? std::sqrt(2 / static_cast<double>(fan_in)) : linear.deviation;
}

std::string describe_deviation(const Linear& linear) {
  return linear.deviation == 0 ? "" : fmt::format(" deviation {:g}", linear.deviation);
}

void check_linear(const Linear& linear) {
  if (linear.features < 1) fail("features is {}; it must be 1 or more", linear.features);
  if (linear.groups < 1) fail("groups is {}; it must be 1 or more", linear.groups);
  if (linear.groups > 1 && !linear.per_place)
    fail("groups is {}; only a linear layer per place has groups", linear.groups);
  if (!linear.tied_to.empty() && (!linear.per_place || linear.groups > 1))
    fail("tied_to is '{}'; only a linear layer per place, without groups, shares the table of an embedding",
         linear.tied_to);
  if (!linear.tied_to.empty() && linear.deviation != 0)
    fail("deviation is {}, but the layer draws no weights; leave it out: the table is drawn by '{}'", linear.deviation,
         linear.tied_to);
  if (!(linear.deviation >= 0)) fail("deviation is {}; it must be more than 0, or 0 for its default", linear.deviation);
}

std::string LinearOperator::describe() const {
  std::string text =
      fmt::format("{} features{}{}", linear_.features, linear_.bias ? "" : " no bias", describe_deviation(linear_));
  if (linear_.activation) {
    text += fmt::format(", {}", name(linear_.activation->kind));
    if (linear_.activation->parameter != 0) text += fmt::format(" {}", linear_.activation->parameter);
  }
  return text;
}

Shape LinearOperator::output(std::span<const Shape> inputs) const {
  check_linear(linear_);
  return {{'N', inputs[0]['N']}, {'C', linear_.features}};
}

std::vector<WeightSpec> LinearOperator::weights(std::span<const Shape> inputs) const {
  const auto& x = inputs[0];
  Shape w{{'F', linear_.features}};
  for (int d = 1; d < x.dims(); ++d) w.push_back({x.name(d), x.extent(d)});
  std::vector<WeightSpec> specs{{"weight", w, Init::normal, deviation_of(linear_, w.volume() / linear_.features)}};
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
