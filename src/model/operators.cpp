#include "partita/model/operators.hpp"

#include "rules.hpp"

#include <algorithm>
#include <cmath>

namespace partita {

namespace {

Shape slide(const Shape& x, Index channels, std::span<const Window> windows) {
  Shape y{{'N', x['N']}, {'C', channels}};
  for (int d = first_spatial; d < x.dims(); ++d) {
    const auto& window = windows[static_cast<std::size_t>(d - first_spatial)];
    const Index extent = window.outputs(x.extent(d));
    if (extent < 1)
      fail("a window that reaches over {} does not fit dimension {} with {} + {} + {} (padding, extent, padding)",
           window.reach(), x.name(d), window.pad_lo, x.extent(d), window.pad_hi);
    y.push_back({x.name(d), extent});
  }
  return y;
}

void need_spatial(const Shape& x) {
  if (x.dims() <= first_spatial) fail("a window needs spatial dimensions, but the input is {}", x.print());
}

}  // namespace

void PerDim::check(std::size_t dims, std::string_view what, Index least) const {
  if (values_.size() != 1 && values_.size() != dims)
    fail("{} has {} values for {} spatial dimensions; give one for all or one each", what, values_.size(), dims);
  for (const Index value : values_)
    if (value < least) fail("{} is {}; it must be {} or more", what, value, least);
}

void Padding::check(std::size_t dims) const {
  if (values_.size() != 1 && values_.size() != dims)
    fail("padding has {} values for {} spatial dimensions; give one for all or one each", values_.size(), dims);
  for (const auto& sides : values_)
    if (sides.lo < 0 || sides.hi < 0) fail("padding is {},{}; it must be 0 or more", sides.lo, sides.hi);
}

InputOperator::InputOperator(Input input) : input_(std::move(input)) {
  if (input_.spatial.size() > 3) fail("an input has at most 3 spatial dimensions, not {}", input_.spatial.size());
  for (const Index extent : input_.spatial)
    if (extent < 1) fail("a spatial extent is {}; it must be 1 or more", extent);
  if (input_.channels < 1) fail("channels is {}; it must be 1 or more", input_.channels);
}

std::string InputOperator::describe() const { return output({}).print().substr(4); }

Shape InputOperator::output(std::span<const Shape> /*inputs*/) const {
  Shape shape{{'N', 1}, {'C', input_.channels}};
  constexpr std::string_view spatial = "DHW";
  const auto skipped = spatial.size() - input_.spatial.size();
  for (std::size_t i = 0; i < input_.spatial.size(); ++i) shape.push_back({spatial[skipped + i], input_.spatial[i]});
  return shape;
}

OperatorLayouts InputOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  return {.y = request.output};
}

std::vector<Window> ConvOperator::windows(const Shape& x) const {
  need_spatial(x);
  const auto dims = static_cast<std::size_t>(x.dims() - first_spatial);
  conv_.kernel.check(dims, "kernel", 1);
  conv_.stride.check(dims, "stride", 1);
  conv_.dilation.check(dims, "dilation", 1);
  conv_.padding.check(dims);
  std::vector<Window> windows;
  for (std::size_t i = 0; i < dims; ++i) windows.push_back(window(i));
  return windows;
}

Window ConvOperator::window(std::size_t i) const {
  return {conv_.kernel[i], conv_.stride[i], conv_.dilation[i], conv_.padding[i].lo, conv_.padding[i].hi};
}

std::string ConvOperator::describe() const {
  std::string text = fmt::format("{} filters", conv_.filters);
  const std::size_t values =
      std::max({conv_.kernel.values(), conv_.stride.values(), conv_.padding.values(), conv_.dilation.values()});
  for (std::size_t i = 0; i < values; ++i) text += fmt::format("{}{}", i == 0 ? " " : " x ", window(i).print());
  return text + (conv_.bias ? "" : " no bias");
}

Shape ConvOperator::output(std::span<const Shape> inputs) const {
  if (conv_.filters < 1) fail("filters is {}; it must be 1 or more", conv_.filters);
  return slide(inputs[0], conv_.filters, windows(inputs[0]));
}

std::vector<WeightSpec> ConvOperator::weights(std::span<const Shape> inputs) const {
  const auto& x = inputs[0];
  Shape w{{'F', conv_.filters}, {'C', x['C']}};
  const auto slides = windows(x);
  for (int d = first_spatial; d < x.dims(); ++d)
    w.push_back({x.name(d), slides[static_cast<std::size_t>(d - first_spatial)].kernel});
  const auto fan_in = static_cast<double>(w.volume() / conv_.filters);
  std::vector<WeightSpec> specs{{"weight", w, Init::normal, std::sqrt(2 / fan_in)}};
  if (conv_.bias)
    specs.push_back({.name = "bias", .shape = {{'F', conv_.filters}}, .init = Init::zeros, .decay = false});
  return specs;
}

// y[N@a H@b W@c] = conv(x[N@a H@b W@c] with halo, w[F C H W]); dw[...] is partial over a, b and c.
OperatorLayouts ConvOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  refuse_channels(request.output, "output");
  need_whole_weights(request);
  const Layout x = basis(request);
  refuse_channels(x, "input");
  const Layout y = x.onto(request.output.shape());
  const auto slides = windows(x.shape());
  OperatorLayouts layouts{
      .x = {x}, .y = y, .dx = {x}, .x_halo = halo_of_inputs(x, y, slides), .dy_halo = halo_of_outputs(x, y, slides)};
  const std::array shapes{x.shape()};
  for (const auto& spec : weights(shapes)) {
    layouts.w.emplace_back(spec.shape, x.grid());
    layouts.dw.push_back(layouts.w.back().with_partial(sample_axes(x)));
  }
  return layouts;
}

Layout ConvOperator::follow(const Layout& x, const Shape& output) const {
  return Operator::follow(x, output).with(output.find('C'), {});
}

double ConvOperator::flops(std::span<const Shape> inputs, const Shape& output) const {
  return 2.0 * static_cast<double>(output.volume()) *
         static_cast<double>(weights(inputs)[0].shape.volume() / conv_.filters);
}

std::vector<Window> PoolOperator::windows(const Shape& x) const {
  need_spatial(x);
  const auto dims = static_cast<std::size_t>(x.dims() - first_spatial);
  pool_.window.check(dims, "window", 1);
  pool_.stride.value_or(pool_.window).check(dims, "stride", 1);
  pool_.dilation.check(dims, "dilation", 1);
  pool_.padding.check(dims);
  std::vector<Window> windows;
  for (std::size_t i = 0; i < dims; ++i) windows.push_back(window(i));
  return windows;
}

Window PoolOperator::window(std::size_t i) const {
  return {pool_.window[i], pool_.stride.value_or(pool_.window)[i], pool_.dilation[i], pool_.padding[i].lo,
          pool_.padding[i].hi};
}

std::string PoolOperator::describe() const {
  std::string text;
  const std::size_t values = std::max({pool_.window.values(), pool_.stride.value_or(pool_.window).values(),
                                       pool_.padding.values(), pool_.dilation.values()});
  for (std::size_t i = 0; i < values; ++i) text += fmt::format("{}{}", i == 0 ? "" : " x ", window(i).print());
  return text + (pool_.count_padding ? " padding counts" : "");
}

Shape PoolOperator::output(std::span<const Shape> inputs) const {
  const auto& x = inputs[0];
  const auto slides = windows(x);
  const Shape y = slide(x, x['C'], slides);
  for (int d = first_spatial; d < x.dims(); ++d)
    for (Index o = 0; o < y.extent(d); ++o)
      if (const auto& window = slides[static_cast<std::size_t>(d - first_spatial)]; !window.reads(o, x.extent(d)))
        fail("window {} of dimension {} lies in the padding alone; pad less than the window reaches ({})", o, x.name(d),
             window.reach());
  return y;
}

// y[N@a C@b H@c] = pool(x[N@a C@b H@c] with halo); the halo's gradient goes back to its owner and is summed.
OperatorLayouts PoolOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  const Layout x = basis(request);
  const Layout y = x.onto(request.output.shape());
  return {.x = {x}, .y = y, .dx = {x}, .x_halo = halo_of_inputs(x, y, windows(x.shape()))};
}

Shape GlobalAveragePoolOperator::output(std::span<const Shape> inputs) const {
  need_spatial(inputs[0]);
  return {{'N', inputs[0]['N']}, {'C', inputs[0]['C']}};
}

// y[N@a C@b sum@c] = sum over own space of x[N@a C@b H@c] / space, whichever way space is cut
OperatorLayouts GlobalAveragePoolOperator::layouts(const LayoutRequest& request) const {
  const Layout x = request.input[0].value_or(request.arriving[0]).with_partial(0);
  const Layout y = x.onto(request.output.shape());
  return {.x = {x}, .y = y.with_partial(x.sharding() & ~y.sharding()), .dx = {x}};
}

double GlobalAveragePoolOperator::flops(std::span<const Shape> inputs, const Shape&) const {
  return static_cast<double>(inputs[0].volume());
}

std::string BatchNormOperator::describe() const {
  return fmt::format("epsilon {:g} momentum {:g} {} statistics", norm_.epsilon, norm_.momentum,
                     norm_.statistics == Statistics::global ? "global" : "local");
}

Shape BatchNormOperator::output(std::span<const Shape> inputs) const {
  if (!(norm_.epsilon > 0)) fail("epsilon is {}; it must be more than 0", norm_.epsilon);
  if (!(norm_.momentum >= 0 && norm_.momentum <= 1)) fail("momentum is {}; it must be in [0, 1]", norm_.momentum);
  static_cast<void>(inputs[0]['C']);
  return inputs[0];
}

std::vector<WeightSpec> BatchNormOperator::weights(std::span<const Shape> inputs) const {
  const Shape channels{{'C', inputs[0]['C']}};
  return {{.name = "scale", .shape = channels, .init = Init::ones, .decay = false},
          {.name = "shift", .shape = channels, .init = Init::zeros, .decay = false},
          {.name = "running_mean", .shape = channels, .init = Init::zeros, .decay = false, .trained = false},
          {.name = "running_variance", .shape = channels, .init = Init::ones, .decay = false, .trained = false}};
}

// mean[C@b] = sum over a, c of x[N@a C@b H@c] / count. The sums that the backward needs are whole when it has them, so
// that gradients of scale and shift need no sum of their own; with local statistics they do.
OperatorLayouts BatchNormOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  const Layout x = basis(request);
  const Layout channels = x.onto(Shape{{'C', x.shape()['C']}});
  if (request.weights && !(*request.weights == channels))
    fail("weights \"{}\": scale and shift lie as the channels of its input do, \"{}\"; leave `weights` out",
         request.weights->print(), channels.print());
  const AxisSet axes = sample_axes(x);
  const bool global = norm_.statistics == Statistics::global;
  const Layout gradient = channels.with_partial(global ? 0 : axes);
  OperatorLayouts layouts{.x = {x},
                          .y = x,
                          .dx = {x},
                          .w = {channels, channels, channels, channels},
                          .dw = {gradient, gradient, channels, channels}};
  if (!request.training || axes == 0) return layouts;
  layouts.collectives.push_back({Collective::When::forward, "statistics forward", axes, channels, 2});
  if (global) layouts.collectives.push_back({Collective::When::backward, "statistics backward", axes, channels, 2});
  return layouts;
}

Shape ElementwiseOperator::output(std::span<const Shape> inputs) const {
  for (const auto& shape : inputs)
    if (!(shape == inputs[0])) fail("its inputs differ in shape: {} and {}", inputs[0].print(), shape.print());
  return inputs[0];
}

// y[L] = f(x[L], ...) for any layout L without a pending sum
OperatorLayouts ElementwiseOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  const Layout x = basis(request);
  const std::vector<Layout> all(static_cast<std::size_t>(inputs()), x);
  return {.x = all, .y = x, .dx = all};
}

namespace {

/// What an activation's parameter is called; "" if it has none.
std::string_view parameter_of(Activation::Kind kind) {
  return kind == Activation::Kind::leaky_relu ? "slope" : kind == Activation::Kind::elu ? "alpha" : "";
}

}  // namespace

Shape ActivationOperator::output(std::span<const Shape> inputs) const {
  const auto parameter = parameter_of(f_.kind);
  if (!parameter.empty() && !(f_.parameter > 0)) fail("{} is {}; it must be more than 0", parameter, f_.parameter);
  return ElementwiseOperator::output(inputs);
}

std::string ActivationOperator::describe() const {
  const auto parameter = parameter_of(f_.kind);
  return parameter.empty() ? "" : fmt::format("{} {:g}", parameter, f_.parameter);
}

Shape ConcatenateOperator::output(std::span<const Shape> inputs) const {
  if (inputs.empty()) fail("it concatenates nothing; give it an input or more");
  Shape y;
  for (int d = 0; d < inputs[0].dims(); ++d) {
    Index extent = 0;
    for (const auto& x : inputs) {
      if (x.names() != inputs[0].names())
        fail("its inputs differ in dimensions: {} and {}", inputs[0].print(), x.print());
      if (x.name(d) != 'C' && x.extent(d) != inputs[0].extent(d))
        fail("its inputs differ in more than channels: {} and {}", inputs[0].print(), x.print());
      extent = x.name(d) == 'C' ? extent + x.extent(d) : x.extent(d);
    }
    y.push_back({inputs[0].name(d), extent});
  }
  return y;
}

// y[N@a C H@b] = (x1[N@a C1 H@b], x2[N@a C2 H@b], ...): all channels of a place on one rank
OperatorLayouts ConcatenateOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  const Layout y = follow(request.input[0].value_or(request.output), request.output.shape());
  OperatorLayouts layouts{.y = y};
  for (const auto& arriving : request.arriving) layouts.x.push_back(follow(y, arriving.shape()));
  layouts.dx = layouts.x;
  return layouts;
}

Layout ConcatenateOperator::follow(const Layout& x, const Shape& output) const {
  return Operator::follow(x, output).with(output.find('C'), {});
}

Shape DropoutOperator::output(std::span<const Shape> inputs) const {
  if (!(dropout_.rate >= 0 && dropout_.rate < 1)) fail("rate is {}; it must be in [0, 1)", dropout_.rate);
  return ElementwiseOperator::output(inputs);
}

std::string DropoutOperator::describe() const { return fmt::format("rate {:g}", dropout_.rate); }

Shape CrossEntropyOperator::output(std::span<const Shape> inputs) const {
  if (inputs[0].names() != "NC") fail("a loss needs an input N C with a channel a class, not {}", inputs[0].print());
  return {{'N', inputs[0]['N']}};
}

// loss = sum over a of cross-entropy(x[N@a C]) / batch
OperatorLayouts CrossEntropyOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  const Layout x = basis(request);
  refuse_channels(x, "input");
  const Layout y = x.onto(request.output.shape());
  const Layout number(Shape{{'L', 1}}, x.grid());
  OperatorLayouts layouts{.x = {x}, .y = y, .dx = {x}};
  if (sample_axes(x) != 0)
    layouts.collectives.push_back({Collective::When::forward, "loss", sample_axes(x), number, 2});
  return layouts;
}

}  // namespace partita
