#include "src/model/contraction.hpp"
#include "src/model/operators.hpp"
#include "src/model/rules.hpp"

#include <array>

namespace partita {

std::string PlaceLinearOperator::describe() const {
  return fmt::format("{} features per place{}{}{}{}", linear_.features,
                     linear_.groups == 1 ? "" : fmt::format(" {} groups", linear_.groups),
                     linear_.bias ? "" : " no bias", describe_deviation(linear_),
                     linear_.tied_to.empty() ? "" : fmt::format(" tied to {}", linear_.tied_to));
}

Shape PlaceLinearOperator::output(std::span<const Shape> inputs) const {
  check_linear(linear_);
  if (linear_.activation) fail("a linear layer per place has no activation of its own; add one as a layer behind it");
  if (const Index channels = inputs[0]['C']; channels % linear_.groups != 0 || linear_.features % linear_.groups != 0)
    fail("{} groups do not divide {} channels and {} features", linear_.groups, channels, linear_.features);
  Shape y;
  for (int d = 0; d < inputs[0].dims(); ++d)
    y.push_back({inputs[0].name(d), inputs[0].name(d) == 'C' ? linear_.features : inputs[0].extent(d)});
  return y;
}

std::vector<WeightSpec> PlaceLinearOperator::weights(std::span<const Shape> inputs) const {
  const Index channels = inputs[0]['C'] / linear_.groups;
  const bool tied = !linear_.tied_to.empty();
  std::vector<WeightSpec> specs{{tied ? "table" : "weight",
                                 {{tied ? 'V' : 'F', linear_.features}, {'C', channels}},
                                 Init::normal,
                                 deviation_of(linear_, channels)}};
  if (linear_.bias)
    specs.push_back({.name = "bias", .shape = {{'F', linear_.features}}, .init = Init::zeros, .decay = false});
  return specs;
}

std::vector<Algorithm> PlaceLinearOperator::algorithms() const { return contraction_algorithms(linear_.groups); }

namespace {

/// Returns the axes that cut the channels of x as it arrives, and samples or places of the output. Over these, x stays
/// as it arrives: each rank multiplies its channels at all of these places, and a reduce-scatter sums and cuts the
/// places (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022). `input`, or
/// whole weights, ask for the other way: x changes from cut channels to cut places. Groups stay where they are, too, if
/// each rank has whole ones: then an all-to-all makes places of the groups of y.
AxisSet scattered_axes(const LayoutRequest& request, Index groups) {
  const Layout& x = request.arriving[0];
  const Shape& y = request.output.shape();
  if (request.input[0]) return 0;
  if (groups > 1 && !keeps_pieces(x, x.shape()['C'] / groups, x.onto(y), y['C'] / groups)) return 0;
  return x.sharding('C') & sample_axes(request.output);
}

}  // namespace

// y[N@a C@o L@b sum@i] = x[N@a C@i L@b] w[F@o C@i]; dw is partial over a and b. With groups, o and i are the same axes.
// Axes that cut a tied table cut no samples nor places of x, whatever the output asks for.
OperatorLayouts PlaceLinearOperator::layouts(const LayoutRequest& request) const {
  const auto from = [&](Layout x) {
    if (!linear_.tied_to.empty() && request.weights) x = without_axes(x, request.weights->sharding());
    const std::array shapes{x.shape()};
    Contraction product;
    product.op = this;
    product.x = x.with(x.shape().find('C'), {});
    product.y = request.output.shape();
    product.weights = weights(shapes);
    product.groups = linear_.groups;
    return contract(product, request);
  };
  const AxisSet scattered = scattered_axes(request, linear_.groups);
  const auto sums = [&](const Layout& w) { return (w.sharding(linear_.groups > 1 ? 'F' : 'C') & scattered) != 0; };
  if (scattered != 0 && (!request.weights || sums(*request.weights)))
    if (OperatorLayouts at = from(request.arriving[0].with_partial(0)); sums(at.w[0])) return at;
  return from(basis(request));
}

Layout PlaceLinearOperator::follow(const Layout& x, const Shape& output) const {
  return Operator::follow(x, output).with(output.find('C'), {});
}

double PlaceLinearOperator::flops(std::span<const Shape> inputs, const Shape& output) const {
  return 2.0 * static_cast<double>(output.volume()) * static_cast<double>(inputs[0]['C'] / linear_.groups);
}

}  // namespace partita
