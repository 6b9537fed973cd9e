#include "src/model/operators.hpp"
#include "src/model/rules.hpp"

namespace partita {

namespace {

/// x's shape without its channels.
Shape places(const Shape& x) {
  Shape shape;
  for (int d = 0; d < x.dims(); ++d)
    if (x.name(d) != 'C') shape.push_back({x.name(d), x.extent(d)});
  return shape;
}

/// The layouts of a loss that runs on x. Two doubles, the loss and the number of correct predictions, are summed over
/// all axes that shard x.
OperatorLayouts loss_of(const Layout& x, const LayoutRequest& request) {
  OperatorLayouts layouts{.x = {x}, .y = x.onto(request.output.shape()), .dx = {x}};
  layouts.y = layouts.y.with_partial(0);
  const Layout number(Shape{{'L', 1}}, x.grid());
  if (x.sharding() != 0) layouts.collectives.push_back({Collective::When::forward, "loss", x.sharding(), number, 2});
  return layouts;
}

/// The layout of a loss's input: the strategy's if it gives one, else the layout in which the input arrives, with
/// samples sharded like the output's.
Layout input_of(const LayoutRequest& request) {
  if (request.input[0]) return request.input[0]->with_partial(0);
  Layout x = request.arriving[0].with_partial(0);
  const auto& samples = request.output.axes(0);
  if (x.axes(0) == samples) return x;
  for (int d = 0; d < x.shape().dims(); ++d)
    if (d == 0 || (x.sharding(d) & request.output.sharding(0)) != 0) x = x.with(d, {});
  return x.with(0, samples);
}

Layout with_whole_channels(const Layout& x) { return x.with(x.shape().find('C'), {}); }

}  // namespace

Shape LossOperator::output(std::span<const Shape> inputs) const {
  if (!inputs[0].has('C')) fail("a loss needs an input N C ..., not {}", inputs[0].print());
  return {{'N', inputs[0]['N']}};
}

Target CrossEntropyOperator::target(const Shape& x) const { return {places(x), true}; }

// loss = sum over a, b of cross-entropy(x[N@a C H@b]) / (samples * places)
OperatorLayouts CrossEntropyOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  if (request.input[0]) refuse_channels(*request.input[0], "input");
  return loss_of(with_whole_channels(input_of(request)), request);
}

Shape DiceOperator::output(std::span<const Shape> inputs) const {
  if (inputs[0].dims() <= first_spatial)
    fail("it needs an input N C ... with spatial dimensions, not {}", inputs[0].print());
  return LossOperator::output(inputs);
}

Target DiceOperator::target(const Shape& x) const { return {places(x), true}; }

// Two sums for each sample and channel.
HeldNumbers DiceOperator::numbers(const Layout& x, int rank, bool /*training*/) const {
  const Box mine = x.owned(rank);
  return {.forward = 2 * mine.extent(0) * mine.extent(1)};
}

// sums[N@a C] = over b: the overlap of softmax(x[N@a C H@b]) and the labels, and the total of both
OperatorLayouts DiceOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  if (request.input[0]) refuse_channels(*request.input[0], "input");
  const Layout x = with_whole_channels(input_of(request));
  OperatorLayouts layouts = loss_of(x, request);
  const AxisSet space = x.sharding() & ~x.sharding('N');
  if (space == 0) return layouts;
  const Layout sums = x.onto(Shape{{'N', x.shape()['N']}, {'C', x.shape()['C']}});
  layouts.collectives.insert(layouts.collectives.begin(), {Collective::When::forward, "overlaps", space, sums, 2});
  return layouts;
}

// loss = sum over a, b, c of difference(x[N@a C@b H@c]) / elements
OperatorLayouts DifferenceOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  return loss_of(input_of(request), request);
}

}  // namespace partita
