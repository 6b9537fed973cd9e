#include "partita/base/error.hpp"
#include "partita/model/operators.hpp"

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

namespace {

/// Of the products, and of the redistribution of x.
double total_of(const OperatorLayouts& way, const LayoutRequest& request) {
  double total = 0;
  for (const auto& step : plan_redistribution(request.arriving[0], way.x[0])) total += wire_elements(step, 0);
  for (std::size_t i = 0; i < way.products.size(); ++i)
    if (i != 1 || request.needs_dx) total += way.products[i].alternatives[0].total();
  return total;
}

ProductPlan plan_named(const char* product, const ProductOperand& a, const ProductOperand& b, const ProductOperand& c,
                       const ProductRequest& request) {
  try {
    return plan_product(a, b, c, request);
  } catch (const Error& error) {
    fail("product {}: {}", product, error.what());
  }
}

}  // namespace

// Where x is gathered for y and again for dw, it may cost less to gather it once; and where the weights lie as the product of y
// takes them, another way of y may cost less over all three, their gradients' sum included.
OperatorLayouts LinearOperator::layouts(const LayoutRequest& request) const {
  const Layout x = request.input[0].value_or(request.arriving[0]).with_partial(0);
  const auto asked = named_algorithms(request.algorithm);
  // Weights that nobody speaks of are whole on the ranks that share samples.
  const AxisSet whole = asked[0] == "auto" ? request.output.sharding('N') : 0;
  OperatorLayouts best = layouts(request, x, whole);
  const std::vector<Alternative> ways = best.products[0].alternatives;
  const auto consider = [&](OperatorLayouts way) {
    if (total_of(way, request) < total_of(best, request)) best = std::move(way);
  };
  const bool x_is_settled = request.input[0] || asked[0] != "auto" || (asked.size() > 2 && asked[2] != "auto");
  if (!x_is_settled) consider(layouts(request, best.products[0].a_used, whole));
  if (request.weights || !request.training || asked[0] != "auto") return best;
  for (const auto& way : ways) {
    if (way.algorithm.empty()) continue;
    LayoutRequest named = request;
    named.algorithm = way.algorithm + request.algorithm.substr(asked[0].size());
    consider(layouts(named, x, whole));
  }
  auto& taken = best.products[0].alternatives;
  for (const auto& way : ways)
    if (taken.size() < ways.size() && way.algorithm != best.products[0].algorithm) taken.push_back(way);
  return best;
}

//     y[n f]  = sum over c of x[n c] w[f c]
//     dx[n c] = sum over f of dy[n f] w[f c]
//     dw[f c] = sum over n of dy[n f] x[n c]       c stands for all of C D H W
OperatorLayouts LinearOperator::layouts(const LayoutRequest& request, const Layout& x, AxisSet whole) const {
  const std::array shapes{x.shape()};
  const auto specs = weights(shapes);
  const auto asked = named_algorithms(request.algorithm);
  const auto algorithm = [&](std::size_t product) { return product < asked.size() ? asked[product] : "auto"; };

  // An activation is applied to whole sums.
  const Layout wanted = linear_.activation ? request.output.with_partial(0) : request.output;
  const bool short_sums = size_of(request.dtype) < size_of(DType::f32);
  const Layout any_w(specs[0].shape, x.grid());
  const ProductPlan of_y = plan_named("y", {x, "mk"}, {request.weights.value_or(any_w), "nk"}, {wanted, "mn"},
                                      {.algorithm = algorithm(0),
                                       .b_follows = !request.weights,
                                       .b_whole = whole,
                                       .completes = linear_.activation.has_value()});
  const Layout &y = of_y.c.layout, &w = of_y.b.layout, dx = request.arriving[0].dual();
  OperatorLayouts layouts{.x = {x}, .y = y, .dx = {dx}, .w = {w}, .dw = {w}, .products = {of_y}};
  if (request.training) {
    const Layout dy = y.dual();
    // Where dw is summed over ranks must not depend on the batch: plans of several share buckets.
    const AxisSet samples = y.sharding('N') & w.replicated();
    const ProductPlan of_dx =
        plan_named("dx", {dy, "mk"}, {w, "kn"}, {dx, "mn"},
                   {.algorithm = request.needs_dx ? algorithm(1) : "auto", .whole_k = short_sums});
    const ProductPlan of_dw = plan_named("dw", {dy, "km"}, {x, "kn"}, {w, "mn"},
                                         {.algorithm = algorithm(2), .pending = samples, .whole_k = short_sums});
    layouts.dx = {of_dx.c.layout};
    layouts.dw = {of_dw.c.layout};
    layouts.products.insert(layouts.products.end(), {of_dx, of_dw});
  }
  if (linear_.bias) {
    layouts.w.push_back(Layout(specs[1].shape, x.grid()).with(0, y.axes(1)));
    layouts.dw.push_back(layouts.w[1].with_partial(y.sharding('N')));
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
