#include "src/model/sliding.hpp"

#include "src/model/rules.hpp"

namespace partita {

std::size_t spatial_dims(const Shape& x) {
  if (x.dims() <= first_spatial) fail("a window needs spatial dimensions, but the input is {}", x.print());
  return static_cast<std::size_t>(x.dims() - first_spatial);
}

Index scaled(Index n, Index scale, char name) {
  if (static_cast<double>(n) * static_cast<double>(scale) > 0x1p48)
    fail("dimension {} would have {} * {} elements; a tensor has at most 2^48", name, n, scale);
  return n * scale;
}

Shape slide(const Shape& x, Index channels, std::span<const Window> windows) {
  Shape y{{'N', x['N']}, {'C', channels}};
  for (int d = first_spatial; d < x.dims(); ++d) {
    const auto& window = windows[d - first_spatial];
    const Index extent = window.outputs(x.extent(d));
    if (extent < 1)
      fail("a window with a reach of {} does not fit dimension {} with {} + {} + {} (padding, extent, padding)",
           window.reach(), x.name(d), window.pad_lo, x.extent(d), window.pad_hi);
    y.push_back({x.name(d), extent});
  }
  return y;
}

}  // namespace partita
