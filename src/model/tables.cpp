#include "src/model/operators.hpp"
#include "src/model/rules.hpp"

#include <array>
#include <cmath>

// Layers of models with tables: bags of their rows, and products of pairs of vectors.

namespace partita {

std::string TablesOperator::describe() const {
  const std::string deviation = tables_.deviation == 0 ? "" : fmt::format(" deviation {:g}", tables_.deviation);
  return fmt::format("{} of {} rows {}{}", tables_.features, tables_.rows, tables_.mean ? "mean" : "sum", deviation);
}

Shape TablesOperator::output(std::span<const Shape> inputs) const {
  constexpr Index most = (Index{1} << 31) - 1;  // indices are i32
  const Shape& x = inputs[0];
  if (tables_.rows < 1 || tables_.rows > most) fail("rows is {}; it must be 1 to {}", tables_.rows, most);
  if (tables_.features < 1) fail("features is {}; it must be 1 or more", tables_.features);
  if (!(tables_.deviation >= 0)) fail("deviation is {}; it must be 0 or more", tables_.deviation);
  if (!x.has('L')) fail("its input {} has no dimension L; it needs a place for each table", x.print());
  return {{'N', x['N']}, {'C', tables_.features}, {'L', x['L']}};
}

std::vector<WeightSpec> TablesOperator::weights(std::span<const Shape> inputs) const {
  const double deviation =
      tables_.deviation == 0 ? 1 / std::sqrt(3 * static_cast<double>(tables_.rows)) : tables_.deviation;
  return {{"table", {{'V', tables_.rows}, {'C', tables_.features}, {'L', inputs[0]['L']}}, Init::normal, deviation}};
}

// y[N@a C@c L@b sum@v] = w[V@v C@c L@b] at x[N@a C L@b]; w's gradient is partial over a. Axes that cut the rows cut
// nothing else: what they cut of the output, the sum over them is scattered to.
OperatorLayouts TablesOperator::layouts(const LayoutRequest& request) const {
  const Shape& indices = request.arriving[0].shape();
  const Shape table = weights(std::array{indices})[0].shape;
  const AxisSet rows = request.weights ? request.weights->sharding('V') : 0;
  const Layout y = without_axes(request.output, rows);
  if (request.weights)
    for (const char d : {'C', 'L'})
      if (request.weights->sharding(d) != y.sharding(d))
        fail("weights \"{}\" cut dimension {} over {}, but the output is cut over {}; cut both alike",
             request.weights->print(), d, request.weights->grid().print(request.weights->sharding(d)),
             request.output.grid().print(y.sharding(d)));
  const Layout x = y.with(y.shape().find('C'), {}).onto(indices);
  Layout w = y.onto(table);
  if (request.weights) w = w.with(table.find('V'), request.weights->axes(0));
  return {.x = {x}, .y = y.with_partial(rows), .dx = {x}, .w = {w}, .dw = {w.with_partial(y.sharding('N'))}};
}

Layout TablesOperator::follow(const Layout& x, const Shape& output) const {
  return Operator::follow(x, output).with(output.find('C'), {});
}

// The additions of a bag.
double TablesOperator::flops(std::span<const Shape> inputs, const Shape& output) const {
  return static_cast<double>(output.volume()) * static_cast<double>(inputs[0]['C']);
}

Shape InteractionOperator::output(std::span<const Shape> inputs) const {
  const Shape &vectors = inputs[0], &dense = inputs[1];
  if (vectors.dims() != 3 || !vectors.has('L'))
    fail("its vectors {} must have the dimensions N C L, with a vector at each place", vectors.print());
  if (dense.dims() != 2) fail("its dense input {} must have the dimensions N C", dense.print());
  if (vectors['C'] != dense['C'])
    fail("its vectors {} and its dense input {} differ in channels", vectors.print(), dense.print());
  const Index all = vectors['L'] + 1;
  return {{'N', dense['N']}, {'C', dense['C'] + all * (all - 1) / 2}};
}

// y[N@a C] of v[N@a C L] and d[N@a C]
OperatorLayouts InteractionOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  const Layout y =
      follow(request.input[0] ? request.input[0]->with_partial(0) : request.output, request.output.shape());
  const Layout vectors = y.onto(request.arriving[0].shape()), dense = y.onto(request.arriving[1].shape());
  return {.x = {vectors, dense}, .y = y, .dx = {vectors, dense}};
}

Layout InteractionOperator::follow(const Layout& x, const Shape& output) const {
  return Operator::follow(x, output).with(output.find('C'), {});
}

// A product and a sum for each channel of each pair.
double InteractionOperator::flops(std::span<const Shape> inputs, const Shape& output) const {
  const auto pairs = static_cast<double>(output.volume() - inputs[1].volume());
  return 2 * pairs * static_cast<double>(inputs[1]['C']);
}

}  // namespace partita
