#include "partita/base/error.hpp"
#include "partita/model/operators.hpp"

#include <cmath>

namespace partita {

namespace {

std::vector<int> without(const std::vector<int>& axes, AxisSet used) {
  for (const int axis : axes)
    if ((used >> axis & 1U) != 0) return {};  // a cut that loses an axis would not be nested as before: whole instead
  return axes;
}

/// x as the product needs it: samples cut as the output's, what is contracted as it arrives or as the strategy says.
Layout product_input(const LayoutRequest& request) {
  if (request.input[0]) return request.input[0]->with_partial(0);
  const Layout& arriving = request.arriving[0];
  const Layout& y = request.output;
  Layout x = Layout(arriving.shape(), arriving.grid()).with(0, y.axes(0));
  const AxisSet used = y.sharding('N') | y.sharding('C');
  for (int d = 1; d < x.shape().dims(); ++d) x = x.with(d, without(arriving.axes(d), used));
  return x;
}

}  // namespace

std::string LinearOperator::describe() const {
  return fmt::format("{} features{}", linear_.features, linear_.bias ? "" : " no bias");
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

// y[N@a F@b sum@c] = x[N@a C@c] * w[F@b C@c]   C stands for all of C D H W
// dx[N@a C@c sum@b] = dy[N@a F@b] * w          dw[F@b C@c sum@a] = dy' * x
OperatorLayouts LinearOperator::layouts(const LayoutRequest& request) const {
  const Layout x = product_input(request);
  const Layout& wanted = request.output;
  const AxisSet samples = x.sharding('N');
  const AxisSet contracted = x.sharding() & ~samples;
  const AxisSet features = wanted.sharding('C') & ~x.sharding();
  const bool keep = features == wanted.sharding('C');
  Layout y = Layout(wanted.shape(), x.grid()).with(0, x.axes(0));
  if (keep) y = y.with(1, wanted.axes(1));
  y = y.with_partial(contracted);

  const std::array shapes{x.shape()};
  const auto specs = weights(shapes);
  Layout block = x.onto(specs[0].shape).with_partial(0);  // what the product needs of w
  if (keep) block = block.with(0, wanted.axes(1));
  const Layout w = request.weights.value_or(block);
  for (int rank = 0; rank < w.grid().size(); ++rank)
    if (!w.owned(rank).contains(block.owned(rank)))
      fail("weights \"{}\": the product needs them as \"{}\" or wholly on every rank that replicates them", w.print(),
           block.print());

  OperatorLayouts layouts{.x = {x}, .y = y, .dx = {x.with_partial(keep ? features : 0)}, .w = {w}};
  // Where w is held more widely than a rank uses it, the ranks form different parts of its gradient.
  layouts.dw.push_back(w.with_partial(samples | (block.sharding() & ~w.sharding())));
  if (linear_.bias) {
    Layout bias(specs[1].shape, x.grid());
    if (keep) bias = bias.with(0, wanted.axes(1));
    layouts.w.push_back(bias);
    layouts.dw.push_back(bias.with_partial(samples));
  }
  return layouts;
}

Layout LinearOperator::follow(const Layout& x, const Shape& output) const {
  return Operator::follow(x, output).with(output.find('C'), {});
}

double LinearOperator::flops(std::span<const Shape> inputs, const Shape& output) const {
  return 2.0 * static_cast<double>(output['N']) * static_cast<double>(weights(inputs)[0].shape.volume());
}

}  // namespace partita
