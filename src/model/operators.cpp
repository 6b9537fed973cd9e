#include "src/model/operators.hpp"

#include "src/model/rules.hpp"

#include <algorithm>
#include <cmath>

namespace partita {

InputOperator::InputOperator(Input input) : input_(std::move(input)) {
  if (input_.spatial.size() > 3) fail("an input has at most 3 spatial dimensions, not {}", input_.spatial.size());
  if (input_.length < 0)
    fail("length is {}; it must be 1 or more, or 0 for an input that is not a sequence", input_.length);
  if (input_.length > 0 && !input_.spatial.empty()) fail("an input has spatial dimensions or a length, not both");
  for (const Index extent : input_.spatial)
    if (extent < 1) fail("a spatial extent is {}; it must be 1 or more", extent);
  if (input_.channels < 1) fail("channels is {}; it must be 1 or more", input_.channels);
  if (input_.tokens && !input_.spatial.empty()) fail("an input of tokens has a length, and no spatial dimensions");
}

std::string InputOperator::describe() const { return output({}).print().substr(4) + (input_.tokens ? " tokens" : ""); }

Shape InputOperator::output(std::span<const Shape> /*inputs*/) const {
  Shape shape{{'N', 1}, {'C', input_.channels}};
  constexpr std::string_view spatial = "DHW";
  const auto skipped = spatial.size() - input_.spatial.size();
  for (std::size_t i = 0; i < input_.spatial.size(); ++i) shape.push_back({spatial[skipped + i], input_.spatial[i]});
  if (input_.length > 0) shape.push_back({'L', input_.length});
  return shape;
}

OperatorLayouts InputOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  return {.y = request.output};
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
  std::vector<Layout> all(static_cast<std::size_t>(inputs()), x);
  return {.x = all, .y = x, .dx = std::move(all)};
}

namespace {

/// The name of an activation's parameter; "" if it has none.
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
  if (inputs.empty()) fail("it has nothing to concatenate; give it one or more inputs");
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

// y[N@a C H@b] = (x1[N@a C1 H@b], x2[N@a C2 H@b], ...): each rank has all channels of its spatial positions
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

}  // namespace partita
