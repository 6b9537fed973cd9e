#pragma once

#include "partita/backend/backend.hpp"
#include "partita/base/error.hpp"
#include "test/support/card.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

/// Reference implementations of the operators: plain loops in double over whole arrays N C D H W, without boxes,
/// formats or optimization.
namespace partita::naive {

/// Coordinates n c d h w, or f c d h w for weights.
using At = std::array<Index, 5>;

/// A global array with origin 0. `get` returns 0 outside.
struct Array {
  At extents{};
  std::vector<double> values;

  explicit Array(const At& e) : extents(e), values(static_cast<std::size_t>(e[0] * e[1] * e[2] * e[3] * e[4])) {}
  bool holds(const At& at) const {
    for (std::size_t d = 0; d < 5; ++d)
      if (at[d] < 0 || at[d] >= extents[d]) return false;
    return true;
  }
  double& operator()(const At& at) {
    Index i = 0;
    for (std::size_t d = 0; d < 5; ++d) i = i * extents[d] + at[d];
    return values[i];
  }
  double get(const At& at) const { return holds(at) ? const_cast<Array&>(*this)(at) : 0; }
};

/// Calls f(at) for all positions of the given extents.
template <class F>
void for_all(const At& extents, F&& f) {
  At at{};
  for (at[0] = 0; at[0] < extents[0]; ++at[0])
    for (at[1] = 0; at[1] < extents[1]; ++at[1])
      for (at[2] = 0; at[2] < extents[2]; ++at[2])
        for (at[3] = 0; at[3] < extents[3]; ++at[3])
          for (at[4] = 0; at[4] < extents[4]; ++at[4]) f(at);
}

using Windows = std::array<Window, 3>;

/// Calls f(position in y, position in x, position in w) for each product of a convolution. The position in x may lie
/// outside x. The number of groups is the number of channels of x divided by that of w.
template <class F>
void for_products(const Windows& windows, const At& x, const At& y, const At& w, F&& f) {
  const Index groups = x[1] / w[1], filters = w[0] / groups;  // filters per group
  for_all(y, [&](const At& o) {
    for_all({1, w[1], w[2], w[3], w[4]}, [&](const At& k) {
      At i{o[0], o[1] / filters * w[1] + k[1]};
      for (std::size_t d = 0; d < 3; ++d)
        i[d + 2] = o[d + 2] * windows[d].stride - windows[d].pad_lo + k[d + 2] * windows[d].dilation;
      f(o, i, At{o[1], k[1], k[2], k[3], k[4]});
    });
  });
}

inline void conv_forward(const Windows& windows, const Array& x, const Array& w, Array& y) {
  for_products(windows, x.extents, y.extents, w.extents,
               [&](const At& o, const At& i, const At& k) { y(o) += x.get(i) * w.get(k); });
}
inline void conv_backward_data(const Windows& windows, const Array& dy, const Array& w, Array& dx) {
  for_products(windows, dx.extents, dy.extents, w.extents, [&](const At& o, const At& i, const At& k) {
    if (dx.holds(i)) dx(i) += dy.get(o) * w.get(k);
  });
}
inline void conv_backward_filter(const Windows& windows, const Array& x, const Array& dy, Array& dw) {
  for_products(windows, x.extents, dy.extents, dw.extents,
               [&](const At& o, const At& i, const At& k) { dw(k) += x.get(i) * dy.get(o); });
}

/// Computes y = pool(x). `picked` receives the position of the first maximum in each window.
inline void pool(const Pooling& pooling, const Windows& windows, const Array& x, Array& y, Array& picked) {
  const At window{1, 1, windows[0].kernel, windows[1].kernel, windows[2].kernel};
  for_all(y.extents, [&](const At& o) {
    double largest = -std::numeric_limits<double>::infinity(), sum = 0, count = 0, position = -1, p = 0;
    for_all(window, [&](const At& k) {
      At i{o[0], o[1]};
      for (std::size_t d = 0; d < 3; ++d)
        i[d + 2] = o[d + 2] * windows[d].stride - windows[d].pad_lo + k[d + 2] * windows[d].dilation;
      if (x.holds(i)) {
        if (x.get(i) > largest) largest = x.get(i), position = p;
        sum += x.get(i);
        ++count;
      } else if (pooling.count_padding) {
        ++count;
      }
      ++p;
    });
    const bool max = pooling.kind == PoolKind::max;
    y(o) = max ? largest : sum / std::max(count, 1.0);
    picked(o) = position;
  });
}

// Conversion between tensors and arrays.

/// Returns the global coordinates of a tensor's element as n c d h w. Missing dimensions are 0: first D, then H.
inline At spread(const Tensor& tensor, const std::array<Index, max_dims>& at) {
  const auto dims = static_cast<std::size_t>(tensor.box().dims());
  At all{at[0], at[1]};
  for (std::size_t d = 2; d < dims; ++d) all[5 - dims + d] = at[d];
  return all;
}

/// Calls f(position in the global array, element in memory order) for each element of the tensor.
template <class F>
void for_elements(const Tensor& tensor, F&& f) {
  const Box& box = tensor.box();
  std::array<Index, max_dims> at{};
  const auto visit = [&](auto&& self, int d) -> void {
    if (d == box.dims()) return f(spread(tensor, at), tensor.offset(at));
    for (Index i = box[d].lo; i < box[d].hi; ++i) {
      at[d] = i;
      self(self, d + 1);
    }
  };
  visit(visit, 0);
}

/// Returns a whole array with the tensor's elements, zero outside the tensor's box.
inline Array whole(const Tensor& tensor, const At& extents) {
  Array array(extents);
  for_elements(tensor, [&](const At& at, Index i) { array(at) = tensor.get(i); });
  return array;
}

// Random cases.

/// A convolution over boxes of global tensors. Its channels and filters may be parts of those of the global tensors.
struct Case {
  int spatial = 2;
  std::vector<Window> slides;
  Windows windows{};
  Box x, w, y;
  At x_extents{}, w_extents{}, y_extents{};
  std::string text;
};

/// Draws random cases.
class Generator {
 public:
  explicit Generator(unsigned seed) : engine_(seed) {}
  Index draw(Index lo, Index hi) { return lo + static_cast<Index>(engine_() % static_cast<unsigned>(hi - lo + 1)); }
  bool one_in(Index n) { return draw(1, n) == 1; }
  double real() { return static_cast<double>(engine_()) / 2147483648.0 - 1; }

  /// Returns a tensor with elements that are uniform in [-1, 1).
  Tensor tensor(DType dtype, std::string_view names, const Box& box) {
    Tensor t = test::tensor(dtype, names, box);
    for (Index i = 0; i < t.volume(); ++i) t.set(i, real());
    return t;
  }
  /// Returns [0, n) or a part of it, sometimes an empty one.
  Interval part(Index n) {
    if (!one_in(3)) return {0, n};
    const Index lo = draw(0, n - 1);
    return {lo, one_in(20) ? lo : draw(lo + 1, n)};
  }
  Window window() {
    const Index kernel = draw(1, 7), dilation = draw(1, 3), pad = dilation * kernel;
    return {kernel, draw(1, 3), dilation, draw(0, pad), draw(0, pad)};
  }

  Case conv(int spatial) {
    Case c;
    c.spatial = spatial;
    c.x = c.y = c.w = Box(spatial + 2);
    const Index groups = one_in(3) ? draw(2, 5) : 1;
    const Index n = draw(1, 3), channels = groups * draw(1, groups > 1 ? 2 : 5),
                filters = groups * draw(1, groups > 1 ? 2 : 5);
    c.x_extents = {n, channels, 1, 1, 1};
    c.w_extents = {filters, channels / groups, 1, 1, 1};
    c.y_extents = {n, filters, 1, 1, 1};
    c.x[0] = one_in(2) ? part(n) : Interval{0, n};
    c.y[0] = one_in(2) ? part(n) : Interval{0, n};
    const Interval part_c = one_in(3) ? part(channels) : Interval{0, channels};
    const Interval part_f = one_in(3) ? part(filters) : Interval{0, filters};
    if (groups == 1) {
      c.x[1] = c.w[1] = part_c;
      c.y[1] = c.w[0] = part_f;
    } else {  // whole groups, with all channels of each
      const Interval some = one_in(3) ? part(groups) : Interval{0, groups};
      const auto of = [&](Index all) { return Interval{some.lo * all / groups, some.hi * all / groups}; };
      c.x[1] = of(channels);
      c.y[1] = c.w[0] = of(filters);
      c.w[1] = {0, channels / groups};
    }
    for (int i = 0; i < spatial; ++i) side(c, i);
    c.text = fmt::format("x{} w{} y{}", c.x.print(), c.w.print(), c.y.print());
    for (const auto& window : c.slides) c.text += fmt::format(" {}", window.print());
    return c;
  }

 private:
  void side(Case& c, int i) {
    const auto d = static_cast<std::size_t>(3 - c.spatial + i);
    const Index most = c.spatial == 1 ? 23 : c.spatial == 2 ? 11 : 6;
    Window window = this->window();
    if (c.spatial == 3) window.kernel = std::min<Index>(window.kernel, 3);
    Index in = draw(1, most);
    while (window.outputs(in) == 0) ++in;
    c.windows[d] = window;
    c.slides.push_back(window);
    c.x_extents[d + 2] = in;
    c.y_extents[d + 2] = window.outputs(in);
    c.w_extents[d + 2] = window.kernel;
    c.x[i + 2] = part(in);
    c.y[i + 2] = part(window.outputs(in));
    c.w[i + 2] = {0, window.kernel};
  }
  std::mt19937 engine_;
};

constexpr std::array<std::string_view, 4> x_names{"NC", "NCW", "NCHW", "NCDHW"};
constexpr std::array<std::string_view, 4> w_names{"FC", "FCW", "FCHW", "FCDHW"};

/// Returns |a - b| / |b| over the tensor's box, and 0 if the box is empty.
inline double distance(const Tensor& a, const Array& b) {
  double difference = 0, norm = 0;
  for_elements(a, [&](const At& at, Index i) {
    const double want = b.get(at), is = a.get(i);
    difference += (is - want) * (is - want);
    norm += want * want;
  });
  return difference == 0 ? 0 : std::sqrt(difference) / std::max(std::sqrt(norm), 1e-3);
}

/// Returns the inner product <a, b> of tensors that hold the same box.
inline double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (Index i = 0; i < a.volume(); ++i) sum += a.get(i) * b.get(i);
  return sum;
}

}  // namespace partita::naive
