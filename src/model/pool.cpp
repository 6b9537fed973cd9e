#include "src/model/operators.hpp"
#include "src/model/rules.hpp"
#include "src/model/sliding.hpp"

#include <algorithm>

namespace partita {

std::vector<Window> PoolOperator::windows(const Shape& x) const {
  const std::size_t dims = spatial_dims(x);
  pool_.window.check(dims, "window", 1);
  pool_.stride.value_or(pool_.window).check(dims, "stride", 1);
  pool_.dilation.check(dims, "dilation", 1);
  pool_.padding.check(dims);
  std::vector<Window> windows;
  double places = 1;
  for (std::size_t i = 0; i < dims; ++i) {
    windows.push_back(window(i));
    places *= static_cast<double>(windows.back().kernel);
  }
  if (constexpr double most = 0x1p31; places >= most)
    fail("the window has {:.0f} places; it may have less than {:.0f}", places, most);
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
  for (int d = first_spatial; d < x.dims(); ++d) {
    const auto& window = slides[d - first_spatial];
    const Index n = x.extent(d);
    // The windows whose first place is an input read it.
    const Interval first_is_input{(window.pad_lo + window.stride - 1) / window.stride,
                                  (n + window.pad_lo + window.stride - 1) / window.stride};
    const auto skip = [&](Index o) { return o == first_is_input.lo ? first_is_input.hi : o; };
    for (Index o = skip(0); o < y.extent(d); o = skip(o + 1)) {
      if (window.reads(o, n)) continue;
      const Index first = o * window.stride - window.pad_lo;
      fail(
          "window {} of dimension {} covers only padding: it reads the places {} to {} in steps of {}, but the inputs "
          "are 0 to {}; pad less{}",
          o, x.name(d), first, first + window.reach() - 1, window.dilation, n - 1,
          window.dilation > n ? ", or dilate less" : "");
    }
  }
  return y;
}

// y[N@a C@b H@c] = pool(x[N@a C@b H@c] with halo); the gradient of the halo is sent back to its owner and summed.
OperatorLayouts PoolOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  const Layout x = basis(request);
  const Layout y = x.onto(request.output.shape());
  return {.x = {x}, .y = y, .dx = {x}, .x_halo = halo_of_inputs(x, y, windows(x.shape()))};
}

Shape GlobalAveragePoolOperator::output(std::span<const Shape> inputs) const {
  static_cast<void>(spatial_dims(inputs[0]));
  return {{'N', inputs[0]['N']}, {'C', inputs[0]['C']}};
}

// y[N@a C@b sum@c] = sum over the rank's own positions of x[N@a C@b H@c] / number of positions, for any sharding of
// spatial dimensions
OperatorLayouts GlobalAveragePoolOperator::layouts(const LayoutRequest& request) const {
  const Layout x = request.input[0].value_or(request.arriving[0]).with_partial(0);
  const Layout y = x.onto(request.output.shape());
  return {.x = {x}, .y = y.with_partial(x.sharding() & ~y.sharding()), .dx = {x}};
}

double GlobalAveragePoolOperator::flops(std::span<const Shape> inputs, const Shape&) const {
  return static_cast<double>(inputs[0].volume());
}

}  // namespace partita
