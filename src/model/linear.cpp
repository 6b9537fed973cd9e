#include "partita/base/error.hpp"
#include "partita/model/operators.hpp"

#include <algorithm>
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

/// The cost of redistributing x and of the product of y.
double cost_of_y(const ProductPlan& of_y, const LayoutRequest& request) {
  double total = 0;
  for (const auto& step : plan_redistribution(request.arriving[0], of_y.a.layout)) total += wire_elements(step, 0);
  return total + of_y.alternatives[0].total();
}

/// The cost of redistributing x and of all three products.
double total_of(const OperatorLayouts& way, const LayoutRequest& request) {
  double total = cost_of_y(way.products[0], request);
  for (std::size_t i = 1; i < way.products.size(); ++i)
    if (i != 1 || request.needs_dx) total += way.products[i].alternatives[0].total();
  return total;
}

/// A lower bound on the cost of the gradients' products: an even share of their operations, and the sum of dw over the
/// ranks that have other samples.
double least_of_gradients(const ProductPlan& of_y, const LayoutRequest& request) {
  const Layout &w = of_y.b.layout, &y = of_y.c.layout;
  const auto volume = [](const Layout& layout) { return static_cast<double>(layout.shape().volume()); };
  const double flops = 2 * std::sqrt(volume(of_y.a.layout) * volume(w) * volume(y)) / w.grid().size();
  const int summed = w.grid().group_size(y.sharding('N') & w.replicated());
  const Alternative least{.algorithm = {},
                          .flops = request.needs_dx ? 2 * flops : flops,
                          .words = wire_of_all_reduce(static_cast<double>(w.owned(0).volume()), summed),
                          .messages = 2 * std::log2(summed)};
  return request.training ? least.total() : 0;
}

/// Returns the layouts to try for x besides the one in which it arrives: the one that a product used, and the one with
/// all features gathered. Each appears once.
std::vector<Layout> others_of_x(const Layout& x, const Layout& used) {
  Layout gathered = x;
  for (int d = 1; d < x.shape().dims(); ++d) gathered = gathered.with(d, {});
  std::vector<Layout> others;
  for (const Layout& each : {used, gathered})
    if (!(each == x) && std::find(others.begin(), others.end(), each) == others.end()) others.push_back(each);
  return others;
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

// If x is gathered for y and again for dw, it may cost less to gather it once. It may also cost less to gather all its
// features, so that weights and gradients stay in place. If the layout of the weights is derived from the product of y,
// another algorithm for y may cost less over all three products, including the sum of weight gradients.
OperatorLayouts LinearOperator::best(const LayoutRequest& request, bool prunes) const {
  const Layout x = request.input[0].value_or(request.arriving[0]).with_partial(0);
  const auto asked = named_algorithms(request.algorithm);
  OperatorLayouts best = layouts(request, product_of_y(request, x, asked[0]));
  const ProductPlan first = best.products[0];
  double least = total_of(best, request);
  const auto held = [](const ProductPlan& of_y) { return of_y.b.layout.owned(0).volume(); };
  const auto consider = [&](const ProductPlan& of_y) {
    if (held(of_y) > held(first)) return;  // products do not count the cost of holding and updating more weights
    if (prunes && cost_of_y(of_y, request) + least_of_gradients(of_y, request) >= least) return;
    OperatorLayouts way = layouts(request, of_y);
    if (const double total = total_of(way, request); total < least) {
      best = std::move(way);
      least = total;
    }
  };
  const bool x_is_settled = request.input[0] || asked[0] != "auto" || (asked.size() > 2 && asked[2] != "auto");
  if (!x_is_settled)
    for (const Layout& at : others_of_x(x, first.a_used)) consider(product_of_y(request, at, asked[0]));
  if (request.weights || !request.training || asked[0] != "auto") return best;
  const auto& ways = first.alternatives;
  for (const auto& each : ways) {
    if (each.algorithm == first.algorithm || each.algorithm.empty()) continue;
    const ProductPlan of_y = product_of_y(request, x, each.algorithm);
    const bool same_gradients = of_y.b.layout == first.b.layout && of_y.c.layout == first.c.layout;
    if (!same_gradients) consider(of_y);
  }
  auto& taken = best.products[0].alternatives;
  for (const auto& way : ways)
    if (taken.size() < ways.size() && way.algorithm != best.products[0].algorithm) taken.push_back(way);
  return best;
}

//     y[n f]  = sum over c of x[n c] w[f c]        c stands for all of C D H W
ProductPlan LinearOperator::product_of_y(const LayoutRequest& request, const Layout& x,
                                         const std::string& algorithm) const {
  const std::array shapes{x.shape()};
  // The activation needs complete sums.
  const Layout wanted = linear_.activation ? request.output.with_partial(0) : request.output;
  // Weights without a requested layout are whole on the ranks that share samples.
  const bool pin_weight_layouts = named_algorithms(request.algorithm)[0] != "auto";
  const Layout any_w(weights(shapes)[0].shape, x.grid());
  return plan_named("y", {x, "mk"}, {request.weights.value_or(any_w), "nk"}, {wanted, "mn"},
                    {.algorithm = algorithm,
                     .b_follows = !request.weights,
                     .b_whole = pin_weight_layouts ? 0 : request.output.sharding('N'),
                     .completes = linear_.activation.has_value()});
}

//     dx[n c] = sum over f of dy[n f] w[f c]
//     dw[f c] = sum over n of dy[n f] x[n c]
OperatorLayouts LinearOperator::layouts(const LayoutRequest& request, const ProductPlan& of_y) const {
  const auto asked = named_algorithms(request.algorithm);
  const auto algorithm = [&](std::size_t product) { return product < asked.size() ? asked[product] : "auto"; };
  const bool short_sums = size_of(request.dtype) < size_of(DType::f32);
  const Layout &x = of_y.a.layout, &y = of_y.c.layout, &w = of_y.b.layout, dx = request.arriving[0].dual();
  OperatorLayouts layouts{.x = {x}, .y = y, .dx = {dx}, .w = {w}, .dw = {w}};
  layouts.products.reserve(3);
  layouts.products.push_back(of_y);
  if (request.training) {
    const Layout dy = y.dual();
    // The axes over which dw is summed must not depend on the batch: plans of several batch sizes share gradient
    // buckets.
    const AxisSet samples = y.sharding('N') & w.replicated();
    ProductPlan of_dx = plan_named("dx", {dy, "mk"}, {w, "kn"}, {dx, "mn"},
                                   {.algorithm = request.needs_dx ? algorithm(1) : "auto", .whole_k = short_sums});
    ProductPlan of_dw = plan_named("dw", {dy, "km"}, {x, "kn"}, {w, "mn"},
                                   {.algorithm = algorithm(2), .pending = samples, .whole_k = short_sums});
    layouts.dx = {of_dx.c.layout};
    layouts.dw = {of_dw.c.layout};
    layouts.products.push_back(std::move(of_dx));
    layouts.products.push_back(std::move(of_dw));
  }
  if (linear_.bias) {
    const std::array shapes{x.shape()};
    layouts.w.push_back(Layout(weights(shapes)[1].shape, x.grid()).with(0, y.axes(1)));
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
