#include "src/model/operators.hpp"
#include "src/model/rules.hpp"

#include <array>

// Layers of sequences x[N C L]. Most of them take any other dimensions in the place of L.

namespace partita {

std::string PlaceNormOperator::describe() const { return fmt::format("epsilon {:g}", epsilon_); }

Shape PlaceNormOperator::output(std::span<const Shape> inputs) const {
  if (!(epsilon_ > 0)) fail("epsilon is {}; it must be more than 0", epsilon_);
  return inputs[0];
}

std::vector<WeightSpec> PlaceNormOperator::weights(std::span<const Shape> inputs) const {
  const Shape channels{{'C', inputs[0]['C']}};
  std::vector<WeightSpec> specs{{.name = "scale", .shape = channels, .init = Init::ones, .decay = false}};
  if (centered_) specs.push_back({.name = "shift", .shape = channels, .init = Init::zeros, .decay = false});
  return specs;
}

// y[N@a C L@b] = normalized x[N@a C L@b]; dscale and dshift are partial over a and b.
OperatorLayouts PlaceNormOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  need_whole_weights(request);
  Layout x = basis(request);
  x = x.with(x.shape().find('C'), {});
  const Layout channels = x.onto(Shape{{'C', x.shape()['C']}}), gradient = channels.with_partial(sample_axes(x));
  OperatorLayouts layouts{.x = {x}, .y = x, .dx = {x}, .w = {channels}, .dw = {gradient}};
  if (centered_) {
    layouts.w.push_back(channels);
    layouts.dw.push_back(gradient);
  }
  return layouts;
}

std::string EmbeddingOperator::describe() const {
  return fmt::format("{} of {} tokens deviation {:g}", embedding_.features, embedding_.vocabulary,
                     embedding_.deviation);
}

Shape EmbeddingOperator::output(std::span<const Shape> inputs) const {
  if (embedding_.vocabulary < 1) fail("vocabulary is {}; it must be 1 or more", embedding_.vocabulary);
  if (embedding_.features < 1) fail("features is {}; it must be 1 or more", embedding_.features);
  if (inputs[0]['C'] != 1) fail("its input {} has {} channels; tokens have 1", inputs[0].print(), inputs[0]['C']);
  return with_channels(inputs[0], embedding_.features);
}

std::vector<WeightSpec> EmbeddingOperator::weights(std::span<const Shape> /*inputs*/) const {
  return {{"table", {{'V', embedding_.vocabulary}, {'C', embedding_.features}}, Init::normal, embedding_.deviation}};
}

// y[N@a C@c L@b sum@v] = table[V@v C@c] at x[N@a L@b]; the table's gradient is partial over a and b. Axes that cut the
// vocabulary cut nothing else: what they cut of the output, the sum over them is scattered to.
OperatorLayouts EmbeddingOperator::layouts(const LayoutRequest& request) const {
  const Shape& tokens = request.arriving[0].shape();
  const Shape table = weights({})[0].shape;
  const AxisSet vocabulary = request.weights ? request.weights->sharding('V') : 0;
  const Layout y = without_axes(request.output, vocabulary);
  if (request.weights && request.weights->sharding('C') != y.sharding('C'))
    fail("weights \"{}\" cut dimension C over {}, but the output is cut over {}; cut both alike",
         request.weights->print(), request.weights->grid().print(request.weights->sharding('C')),
         request.output.grid().print(y.sharding('C')));
  const Layout x = y.with(y.shape().find('C'), {}).onto(tokens);
  Layout w = y.onto(table);
  if (request.weights) w = w.with(table.find('V'), request.weights->axes(0));
  return {.x = {x}, .y = y.with_partial(vocabulary), .dx = {x}, .w = {w}, .dw = {w.with_partial(sample_axes(y))}};
}

Shape PlacesOperator::output(std::span<const Shape> inputs) const {
  const Shape& x = inputs[0];
  if (x.dims() <= first_spatial || x.has('L'))
    fail("its input {} has no spatial dimensions D H W that could become places", x.print());
  return {{'N', x['N']}, {'C', x['C']}, {'L', x.volume() / (x['N'] * x['C'])}};
}

namespace {

/// A layout of x[N C H ...] whose first spatial dimension is cut as the places are, and y's layout from x's.
Layout of_positions(const Layout& y, const Shape& x) {
  return y.onto(x).with(first_spatial, y.axes(y.shape().find('L')));
}
Layout of_places(const Layout& x, const Shape& y) { return x.onto(y).with(y.find('L'), x.axes(first_spatial)); }

}  // namespace

// y[N@a C@c L@h] = x[N@a C@c H@h W], if each shard of H holds the places of the shard of L; else these are whole.
OperatorLayouts PlacesOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  const Shape &x = request.arriving[0].shape(), &y = request.output.shape();
  Layout in = request.input[0] ? request.input[0]->with_partial(0) : of_positions(request.output, x);
  for (int d = first_spatial + 1; d < x.dims(); ++d) in = in.with(d, {});
  const Index row = y['L'] / x.extent(first_spatial);
  for (int rank = 0; rank < in.grid().size(); ++rank) {
    const Interval rows = in.owned(rank)[first_spatial], places = of_places(in, y).owned(rank)[first_spatial];
    if (rows.lo * row != places.lo || rows.hi * row != places.hi) in = in.with(first_spatial, {});
  }
  return {.x = {in}, .y = of_places(in, y), .dx = {in}};
}

Layout PlacesOperator::follow(const Layout& x, const Shape& output) const {
  return of_places(x.with_partial(0), output);
}

std::string PositionsOperator::describe() const {
  const std::string table = positions_.places == 0 ? "" : fmt::format("{} places ", positions_.places);
  return fmt::format("{}deviation {:g}", table, positions_.deviation);
}

Shape PositionsOperator::output(std::span<const Shape> inputs) const {
  check_places(inputs[0], kind());
  if (positions_.places != 0 && positions_.places < inputs[0]['L'])
    fail("its table has {} places, but its input {} has {}", positions_.places, inputs[0].print(), inputs[0]['L']);
  return inputs[0];
}

std::vector<WeightSpec> PositionsOperator::weights(std::span<const Shape> inputs) const {
  const Index places = positions_.places == 0 ? inputs[0]['L'] : positions_.places;
  return {{"table", {{'C', inputs[0]['C']}, {'L', places}}, Init::normal, positions_.deviation}};
}

// y[N@a C@c L@b] = x[N@a C@c L@b] + w[C@c L@b]; dw is partial over a. A table with more places than x is whole along
// them, since its places are not cut as those of x, and dw is partial over b too.
OperatorLayouts PositionsOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  const Layout x = basis(request);
  Layout w = x.onto(weights(std::array{x.shape()})[0].shape);
  if (positions_.places != 0) w = w.with(w.shape().find('L'), {});
  if (request.weights && !(request.weights->sharding() == w.sharding()))
    fail("weights \"{}\" are not cut as the output \"{}\"; leave them out: they follow it", request.weights->print(),
         x.print());
  return {.x = {x}, .y = x, .dx = {x}, .w = {w}, .dw = {w.with_partial(sample_axes(x) & ~w.sharding('L'))}};
}

Shape GatedOperator::output(std::span<const Shape> inputs) const {
  const Index channels = inputs[0]['C'];
  if (channels % 2 != 0) fail("its input has {} channels; a gate and its value are pairs of channels", channels);
  return with_channels(inputs[0], channels / 2);
}

// y[N@a C@c L@b] = f(gates) * values of x[N@a C@c L@b], if each shard of x holds the pairs of y's shard.
OperatorLayouts GatedOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  return by_pieces(basis(request), request.output.shape(), 2, 1);
}

}  // namespace partita
