#include "partita/base/dispatch.hpp"
#include "src/backend/cpu/reference.hpp"

#include <vector>

namespace partita {

namespace {

/// x[N C ...] as samples of points, with the channels innermost.
struct Points {
  Index samples, points, channels;

  Points(const Tensor& x, const Tensor& y) : samples(x.box().extent(0)), points(1), channels(x.box().extent(1)) {
    require(x.dtype() == y.dtype() && y.names() == "NC",
            "both tensors must have the same dtype, and the one without space the dimensions N C");
    require(x.box()[0] == y.box()[0] && x.box()[1] == y.box()[1],
            "both tensors must have the same samples and channels");
    for (int d = 2; d < x.box().dims(); ++d) points *= x.box().extent(d);
  }
};

}  // namespace

void ReferenceBackend::spatial_sum(const Tensor& x, double scale, const Tensor& y, Stream) {
  const Points size(x, y);
  std::vector<double> sums(static_cast<std::size_t>(size.channels));
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const T* from = x.as<T>();
    T* to = y.as<T>();
    for (Index n = 0; n < size.samples; ++n, to += size.channels) {
      std::fill(sums.begin(), sums.end(), 0.0);
      double* __restrict sum = sums.data();
      for (Index point = 0; point < size.points; ++point, from += size.channels)
        for (Index c = 0; c < size.channels; ++c) sum[c] += static_cast<double>(from[c]);
      for (Index c = 0; c < size.channels; ++c) to[c] = static_cast<T>(scale * sum[c]);
    }
  });
}

void ReferenceBackend::spatial_spread(const Tensor& dy, double scale, const Tensor& dx, Stream) {
  const Points size(dx, dy);
  dispatch_float(dx.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const T* from = dy.as<T>();
    T* to = dx.as<T>();
    for (Index n = 0; n < size.samples; ++n, from += size.channels)
      for (Index point = 0; point < size.points; ++point, to += size.channels)
        for (Index c = 0; c < size.channels; ++c)
          to[c] = static_cast<T>(static_cast<A>(scale) * static_cast<A>(from[c]));
  });
}

}  // namespace partita
