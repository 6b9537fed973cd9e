#pragma once

// A layer of the user's own that has a window and weights, as docs/own-layer-and-data.md describes.

#include "partita/base/error.hpp"
#include "partita/model/operator.hpp"

namespace partita::test {

/// What the layer is: y[h] = x[h] + rate[C] (x[h-1] - 2 x[h] + x[h+1]) along H, with zeros beyond the edges. `Base` is
/// CustomLayer, or Operator where nothing runs.
template <class Base>
class DiffusionRule : public Base {
 public:
  /// `overlap` says which halos travel while the layer computes. Without `dy_halo`, the gradients of x's halo go back.
  DiffusionRule(HaloOverlap overlap, bool dy_halo) : overlap_(overlap), dy_halo_(dy_halo) {}

  std::string_view kind() const override { return "diffusion"; }
  std::string describe() const override { return dy_halo_ ? "" : "returns its halo"; }
  Shape output(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::vector<WeightSpec> weights(std::span<const Shape> inputs) const override {
    return {{.name = "rate", .shape = {{'C', inputs[0]['C']}}, .init = Init::normal, .deviation = 0.3}};
  }

  // y[N@a C@b H@c] = f(x[N@a C@b H@c] with halo, rate[C@b])
  // dx[N@a C@b H@c] = f'(dy[N@a C@b H@c] with halo, rate[C@b])
  // drate[C@b sum@(a,c)] = sum of dy (x[h-1] - 2 x[h] + x[h+1])
  OperatorLayouts layouts(const LayoutRequest& request) const override {
    const Layout x = request.input[0].value_or(request.output).with_partial(0);
    const Layout rate = x.onto({{'C', x.shape()['C']}});
    if (request.weights && *request.weights != rate)
      fail("the rates must have the layout of the channels: \"{}\"", rate.print());
    OperatorLayouts layouts{.x = {x}, .y = x, .dx = {x}, .w = {rate}, .dw = {}};
    layouts.dw = {rate.with_partial(x.sharding() & ~x.sharding('C'))};
    layouts.x_halo = halo_of_inputs(x, x, windows(x.shape()));
    if (dy_halo_) layouts.dy_halo = halo_of_outputs(x, x, windows(x.shape()));
    return layouts;
  }
  double flops(std::span<const Shape> /*inputs*/, const Shape& output) const override {
    return 5 * static_cast<double>(output.volume());
  }
  HaloOverlap halo_overlap() const override { return overlap_; }
  bool computes_dw_separately() const override { return true; }

  /// One window for each spatial dimension: three rows of H, and one place of every other dimension.
  static std::vector<Window> windows(const Shape& x) {
    std::vector<Window> windows(static_cast<std::size_t>(x.dims() - 2));
    windows[0] = {.kernel = 3, .pad_lo = 1, .pad_hi = 1};
    return windows;
  }

 protected:
  bool has_dy_halo() const { return dy_halo_; }

 private:
  HaloOverlap overlap_;
  bool dy_halo_;
};

}  // namespace partita::test
