#include "geometry.hpp"
#include "reference.hpp"
#include "scratch.hpp"

#include <limits>
#include <vector>

namespace partita {

namespace {

void check_pool(const Pooling& pooling, const Tensor& x, const Tensor& y, const Tensor& picked) {
  require(x.dtype() == y.dtype() && x.box().dims() == y.box().dims(), "pooling keeps dtype and dimensions");
  require(static_cast<int>(pooling.windows.size()) + 2 == y.box().dims(), "one window a dimension behind C");
  if (pooling.kind == PoolKind::max)
    require(picked.dtype() == DType::i32 && picked.box() == y.box(), "picked is i32 over y's box");
  if (x.volume() == 0) return;
  require(x.box().extent(1) == y.box().extent(1), "pooling keeps channels");
  require(intersect(x.box()[0], y.box()[0]) == y.box()[0], "x holds the samples of y");
}

/// The inputs that one window covers: offsets[p] in x's memory for position p of the window, -1 where x holds none.
class Cover {
 public:
  Cover(const Pooling& pooling, const Tensor& x) : windows_(three(pooling.windows)), x_(x) {
    offsets.resize(static_cast<std::size_t>(windows_[0].kernel * windows_[1].kernel * windows_[2].kernel));
    always_whole_ = pooling.count_padding;
  }

  void move_to(const Position& out) {
    const Position start = first_input(windows_, out);
    covered_ = 0;
    std::size_t p = 0;
    Position at = start;
    for (Index kd = 0; kd < windows_[0].kernel; ++kd)
      for (Index kh = 0; kh < windows_[1].kernel; ++kh)
        for (Index kw = 0; kw < windows_[2].kernel; ++kw, ++p) {
          at[1] = start[1] + kd * windows_[0].dilation;
          at[2] = start[2] + kh * windows_[1].dilation;
          at[3] = start[3] + kw * windows_[2].dilation;
          const bool inside = x_.holds(0, at[0]) && x_.holds(1, at[1]) && x_.holds(2, at[2]) && x_.holds(3, at[3]);
          offsets[p] = inside ? x_.offset(at) : -1;
          covered_ += inside ? 1 : 0;
        }
  }
  /// What an average divides by; at least 1.
  Index divisor() const { return always_whole_ ? static_cast<Index>(offsets.size()) : std::max<Index>(covered_, 1); }

  std::vector<Index> offsets;

 private:
  std::array<Window, 3> windows_;
  Lattice x_;
  bool always_whole_ = false;
  Index covered_ = 0;
};

/// Calls f(offset of the channels in y's memory) for each output, `cover` being moved to it.
template <class F>
void for_outputs(const Tensor& y, Cover& cover, F&& f) {
  const Positions outputs(y.box());
  const Lattice lattice(y);
  for (Index o = 0; o < outputs.count(); ++o) {
    const Position at = outputs[o];
    cover.move_to(at);
    f(lattice.offset(at));
  }
}

/// best[c] = the first maximum over the window, picked[c] = its position; minus infinity and -1 of nothing.
template <class T>
void max_of(const Cover& cover, const T* x, Index channels, Accumulator<T>* best, std::int32_t* picked) {
  using A = Accumulator<T>;
  std::fill_n(best, channels, -std::numeric_limits<A>::infinity());
  std::fill_n(picked, channels, -1);
  bool first = true;
  for (std::size_t p = 0; p < cover.offsets.size(); ++p) {
    if (cover.offsets[p] < 0) continue;
    const T* from = x + cover.offsets[p];
    const auto position = static_cast<std::int32_t>(p);
    for (Index c = 0; c < channels; ++c) {
      const A value = static_cast<A>(from[c]);
      const bool better = first || value > best[c];
      best[c] = better ? value : best[c];
      picked[c] = better ? position : picked[c];
    }
    first = false;
  }
}

template <class T>
void average_of(const Cover& cover, const T* x, Index channels, Accumulator<T>* mean) {
  using A = Accumulator<T>;
  std::fill_n(mean, channels, A{0});
  for (const Index offset : cover.offsets)
    if (offset >= 0)
      for (Index c = 0; c < channels; ++c) mean[c] += static_cast<A>(x[offset + c]);
  for (Index c = 0; c < channels; ++c) mean[c] /= static_cast<A>(cover.divisor());
}

}  // namespace

void ReferenceBackend::pool_forward(const Pooling& pooling, const Tensor& x, const Tensor& y, const Tensor& picked,
                                    Stream) {
  if (y.volume() == 0) return;
  check_pool(pooling, x, y, picked);
  const Index channels = y.box().extent(1);
  Cover cover(pooling, x);
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    const Scratch<Accumulator<T>> result(channels);
    for_outputs(y, cover, [&](Index at) {
      if (pooling.kind == PoolKind::max)
        max_of(cover, x.as<T>(), channels, result.data(), picked.as<std::int32_t>() + at);
      else
        average_of(cover, x.as<T>(), channels, result.data());
      for (Index c = 0; c < channels; ++c) y.as<T>()[at + c] = static_cast<T>(result[c]);
    });
  });
}

void ReferenceBackend::pool_backward(const Pooling& pooling, const Tensor& dy, const Tensor& picked, const Tensor& dx,
                                     Stream) {
  if (dy.volume() == 0 || dx.volume() == 0) return;
  check_pool(pooling, dx, dy, picked);
  const Index channels = dy.box().extent(1);
  Cover cover(pooling, dx);
  dispatch_float(dx.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const Widened<T> sums(dx.as<T>(), dx.volume());
    for_outputs(dy, cover, [&](Index at) {
      const T* from = dy.as<T>() + at;
      if (pooling.kind == PoolKind::max) {
        const std::int32_t* winner = picked.as<std::int32_t>() + at;
        for (Index c = 0; c < channels; ++c)
          if (winner[c] >= 0)
            sums.data()[cover.offsets[static_cast<std::size_t>(winner[c])] + c] += static_cast<A>(from[c]);
      } else {
        const auto divisor = static_cast<A>(cover.divisor());
        for (const Index offset : cover.offsets)
          if (offset >= 0)
            for (Index c = 0; c < channels; ++c) sums.data()[offset + c] += static_cast<A>(from[c]) / divisor;
      }
    });
    sums.store();
  });
}

}  // namespace partita
