#include "strategies/plan/resting_weights.hpp"

#include "partita/base/error.hpp"

namespace partita {

namespace {

bool has(AxisSet set, int axis) { return (set >> axis & 1U) != 0; }

/// True for a linear layer, which may send its weights in panels.
bool computes_products(const Operator& op) { return op.products() > 1; }

/// The axes over which a layer may gather weights that are cut as `asked`. They cut samples or space of its output.
AxisSet axes_of_samples(const Operator& op, const LayoutRequest& request, const Layout& asked) {
  const Layout &x = request.input[0] ? *request.input[0] : request.arriving[0], &y = request.output;
  if (computes_products(op))
    return request.algorithms.empty() ? y.sharding('N') & x.sharding('N') & asked.sharding(0) : 0;
  if (op.reads_integers(0)) return asked.shape().has('L') ? 0 : y.sharding('N');
  AxisSet axes = 0;
  for (int d = 0; d < y.shape().dims(); ++d)
    if (const char name = y.shape().name(d); name != 'C') axes |= y.sharding(d) & ~asked.sharding(name);
  const bool follows_y = op.algorithms().empty() && !request.input[0];
  return axes & ~y.sharding('C') & ~(follows_y ? 0 : x.sharding('C'));
}

/// Those of some axes that stand behind all others in the dimension that they cut.
AxisSet last_axes(const Layout& layout, AxisSet of) {
  AxisSet last = 0;
  for (int d = 0; d < layout.shape().dims(); ++d)
    for (std::size_t i = layout.axes(d).size(); i-- > 0 && has(of, layout.axes(d)[i]);)
      last |= AxisSet{1} << layout.axes(d)[i];
  return last;
}

/// Returns a layout in which some axes cut nothing.
Layout without(Layout layout, AxisSet dropped) {
  for (int d = 0; d < layout.shape().dims(); ++d) {
    AxisList axes;
    for (const int axis : layout.axes(d))
      if (!has(dropped, axis)) axes.push_back(axis);
    layout = layout.with(d, axes);
  }
  return layout;
}

}  // namespace

AxisSet gathered_axes(const Operator& op, const LayoutRequest& request, const Layout& asked) {
  if (request.arriving.empty()) return 0;
  const AxisSet all = asked.sharding() & axes_of_samples(op, request, asked);
  return computes_products(op) || op.reads_integers(0) ? last_axes(asked, all) : all;
}

Layout fully_sharded(const Operator& op, const LayoutRequest& request, const Layout& w) {
  if (request.arriving.empty()) return w;
  const int slowest = memory_order(w.shape().names())[0];
  AxisList axes = w.axes(slowest);
  Layout all = w;  // with the axes of samples, so that those of a linear layer are found
  for (int axis = 0; axis < w.grid().axes(); ++axis)
    if (!has(w.sharding(), axis)) axes.push_back(axis);
  all = all.with(slowest, axes);
  return without(all, all.sharding() & ~w.sharding() & ~axes_of_samples(op, request, all));
}

Layout without_gathered(const Layout& asked, AxisSet gathered) {
  for (int d = 0; d < asked.shape().dims(); ++d)
    for (std::size_t i = 1; i < asked.axes(d).size(); ++i)
      if (has(gathered, asked.axes(d)[i - 1]) && !has(gathered, asked.axes(d)[i]))
        fail("weights \"{}\": the weights are gathered over {} before each use; name '{}' before these axes",
             asked.print(), asked.grid().print(gathered), asked.grid().name(asked.axes(d)[i]));
  return without(asked, gathered);
}

void rest_weights(LayerBinding& layer, const Layout& first, bool training) {
  const AxisSet gathered = first.sharding() & ~layer.at.w[0].sharding();
  for (std::size_t j = 0; j < layer.weights.size(); ++j) {
    const Layout& w = layer.at.w[j];
    LayerBinding::Rest rest{w, {}, {}, {}};
    for (int d = 0; layer.weights[j].trained && d < w.shape().dims(); ++d) {
      const int same = first.shape().find(w.shape().name(d));
      AxisList axes = w.axes(d);
      for (const int axis : same < 0 ? AxisList{} : first.axes(same))
        if (has(gathered & ~w.sharding(), axis)) axes.push_back(axis);
      rest.w = rest.w.with(d, axes);
    }
    rest.gather = plan_redistribution(rest.w, w);
    if (training && layer.weights[j].trained) {
      const Layout& dw = layer.at.dw[j];
      rest.dw = rest.w.with_partial(dw.partial() & ~rest.w.sharding());
      if (!rest.gather.empty()) rest.scatter = plan_redistribution(dw, rest.dw);
    }
    layer.rest.push_back(std::move(rest));
  }
}

}  // namespace partita
