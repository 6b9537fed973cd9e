#include "src/model/linear_layouts.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace partita {

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
OperatorLayouts LinearLayouts::best(const LayoutRequest& request, Ways considered) const {
  const Layout x = request.input[0].value_or(request.arriving[0]).with_partial(0);
  const Algorithm asked = request.algorithm();
  OperatorLayouts best = layouts(request, product_of_y(request, x, asked));
  const ProductPlan first = best.products[0];
  double least = total_of(best, request);
  const auto held = [](const ProductPlan& of_y) { return of_y.b.layout.owned(0).volume(); };
  const auto consider = [&](const ProductPlan& of_y) {
    if (held(of_y) > held(first)) return;  // products do not count the cost of holding and updating more weights
    if (considered == Ways::promising && cost_of_y(of_y, request) + least_of_gradients(of_y, request) >= least) return;
    OperatorLayouts way = layouts(request, of_y);
    if (const double total = total_of(way, request); total < least) {
      best = std::move(way);
      least = total;
    }
  };
  const bool x_is_settled =
      request.input[0] || asked != Algorithm::automatic || request.algorithm(2) != Algorithm::automatic;
  if (!x_is_settled)
    for (const Layout& at : others_of_x(x, first.a_used)) consider(product_of_y(request, at, asked));
  if (request.weights || !request.training || asked != Algorithm::automatic) return best;
  const auto& ways = first.alternatives;
  for (const auto& each : ways) {
    if (each.algorithm == first.algorithm || !each.algorithm) continue;
    const ProductPlan of_y = product_of_y(request, x, *each.algorithm);
    const bool same_gradients = of_y.b.layout == first.b.layout && of_y.c.layout == first.c.layout;
    if (!same_gradients) consider(of_y);
  }
  auto& taken = best.products[0].alternatives;
  for (const auto& way : ways)
    if (taken.size() < ways.size() && way.algorithm != best.products[0].algorithm) taken.push_back(way);
  return best;
}

//     y[n f]  = sum over c of x[n c] w[f c]        c stands for all of C D H W
ProductPlan LinearLayouts::product_of_y(const LayoutRequest& request, const Layout& x, Algorithm algorithm) const {
  const std::array shapes{x.shape()};
  const std::optional<Activation>& activation = layer_.linear().activation;
  // The activation needs complete sums.
  const Layout wanted = activation ? request.output.with_partial(0) : request.output;
  // Weights without a requested layout are whole on the ranks that share samples.
  const bool names_algorithm = request.algorithm() != Algorithm::automatic;
  const Layout any_w(layer_.weights(shapes)[0].shape, x.grid());
  return plan_named("y", {x, "mk"}, {request.weights.value_or(any_w), "nk"}, {wanted, "mn"},
                    {.algorithm = algorithm,
                     .b_follows = !request.weights,
                     .b_whole = names_algorithm ? 0 : request.output.sharding('N'),
                     .completes = activation.has_value()});
}

//     dx[n c] = sum over f of dy[n f] w[f c]
//     dw[f c] = sum over n of dy[n f] x[n c]
OperatorLayouts LinearLayouts::layouts(const LayoutRequest& request, const ProductPlan& of_y) const {
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
    ProductPlan of_dx = plan_named(
        "dx", {dy, "mk"}, {w, "kn"}, {dx, "mn"},
        {.algorithm = request.needs_dx ? request.algorithm(1) : Algorithm::automatic, .whole_k = short_sums});
    ProductPlan of_dw = plan_named("dw", {dy, "km"}, {x, "kn"}, {w, "mn"},
                                   {.algorithm = request.algorithm(2), .pending = samples, .whole_k = short_sums});
    layouts.dx = {of_dx.c.layout};
    layouts.dw = {of_dw.c.layout};
    layouts.products.push_back(std::move(of_dx));
    layouts.products.push_back(std::move(of_dw));
  }
  if (layer_.linear().bias) {
    const std::array shapes{x.shape()};
    layouts.w.push_back(Layout(layer_.weights(shapes)[1].shape, x.grid()).with(0, y.axes(1)));
    layouts.dw.push_back(layouts.w[1].with_partial(y.sharding('N')));
  }
  return layouts;
}

}  // namespace partita
