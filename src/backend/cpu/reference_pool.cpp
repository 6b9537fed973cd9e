#include "src/backend/common/geometry.hpp"
#include "src/backend/common/scratch.hpp"
#include "src/backend/cpu/reference.hpp"

#include <limits>
#include <vector>

namespace partita {

namespace {

void check_pool(const Pooling& pooling, const Tensor& x, const Tensor& y, const Tensor& picked, const Box& part) {
  require(x.dtype() == y.dtype() && x.box().dims() == y.box().dims(), "pooling must keep the dtype and the dimensions");
  require(static_cast<int>(pooling.windows.size()) + 2 == y.box().dims(),
          "there must be one window per dimension after C");
  if (pooling.kind == PoolKind::max)
    require(picked.dtype() == DType::i32 && picked.box() == y.box(), "picked must be i32 with y's box");
  require(y.box().contains(part) && part[1] == y.box()[1], "the part must lie inside y and have its channels");
  if (x.volume() == 0) return;
  require(x.box().extent(1) == y.box().extent(1), "pooling must keep the channels");
  require(intersect(x.box()[0], part[0]) == part[0], "x must hold the samples of the part");
}

/// The inputs that one window covers. Away from the edges of x these are all taps, at fixed distances from the first
/// input.
class Cover {
 public:
  struct Tap {
    std::int32_t position;  ///< number of the tap in the window
    Position step;          ///< distance from the window's first input, in each dimension
    Index offset;           ///< the same distance in x's memory, in elements
  };

  Cover(const Pooling& pooling, const Tensor& x)
      : windows_(three(pooling.windows)), x_(lattice_of(x)), always_whole_(pooling.count_padding) {
    std::int32_t position = 0;
    for (Index kd = 0; kd < windows_[0].kernel; ++kd)
      for (Index kh = 0; kh < windows_[1].kernel; ++kh)
        for (Index kw = 0; kw < windows_[2].kernel; ++kw) {
          const Position step{0, kd * windows_[0].dilation, kh * windows_[1].dilation, kw * windows_[2].dilation};
          Index offset = 0;
          for (std::size_t d = 1; d < 4; ++d) offset += step[d] * x_.strides[d];
          all_.push_back({position++, step, offset});
        }
  }

  /// Moves to a row of outputs: all outputs that differ in w only.
  void move_to_row(const Position& out) {
    row_ = first_input(windows_, out);
    row_first_ = x_.offset({row_[0], row_[1], row_[2], x_.sides[3].lo});
    row_inside_ = x_.holds(0, row_[0]);
    for (std::size_t d = 1; d < 3; ++d)
      row_inside_ = row_inside_ && x_.holds(d, row_[d]) && x_.holds(d, row_[d] + all_.back().step[d]);
  }
  /// Moves to one output of the row.
  void move_to(Index w) {
    const Index start = w * windows_[2].stride - windows_[2].pad_lo;
    first_ = row_first_ + (start - x_.sides[3].lo) * x_.strides[3];
    taps_ = &all_;
    if (row_inside_ && x_.holds(3, start) && x_.holds(3, start + all_.back().step[3])) return;
    row_[3] = start;
    some_.clear();
    for (const Tap& tap : all_) {
      bool held = true;
      for (std::size_t d = 0; d < 4; ++d) held = held && x_.holds(d, row_[d] + tap.step[d]);
      if (held) some_.push_back(tap);
    }
    taps_ = &some_;
  }

  const std::vector<Tap>& taps() const { return *taps_; }
  /// Returns the tap's offset in x's memory.
  Index offset(const Tap& tap) const { return first_ + tap.offset; }
  /// Returns the divisor of an average; at least 1.
  Index divisor() const {
    return static_cast<Index>(std::max<std::size_t>((always_whole_ ? &all_ : taps_)->size(), 1));
  }

 private:
  std::array<Window, 3> windows_;
  Lattice x_;
  bool always_whole_;
  std::vector<Tap> all_, some_;
  const std::vector<Tap>* taps_ = &all_;
  Position row_{};  // the first input of the window; its w is set only by move_to
  bool row_inside_ = false;
  Index row_first_ = 0, first_ = 0;
};

/// Calls f(offset of the channels in y's memory) for each output of `part`, after moving `cover` to it.
template <class F>
void for_outputs(const Tensor& y, const Box& part, Cover& cover, F&& f) {
  const Lattice lattice = lattice_of(y);
  const auto& [samples, planes, rows, columns] = sides_of(part);
  for (Index n = samples.lo; n < samples.hi; ++n) {
    for (Index d = planes.lo; d < planes.hi; ++d) {
      for (Index h = rows.lo; h < rows.hi; ++h) {
        cover.move_to_row({n, d, h, columns.lo});
        Index at = lattice.offset({n, d, h, columns.lo});
        for (Index w = columns.lo; w < columns.hi; ++w, at += lattice.strides[3]) {
          cover.move_to(w);
          f(at);
        }
      }
    }
  }
}

/// Adds one more input of the window. NaN wins wherever it is in the window, since no value is larger than an unknown
/// one. Both results are always written, since a branch would often be mispredicted.
template <class T>
void keep_larger(const T* __restrict from, std::int32_t position, Index channels, T* __restrict best,
                 std::int32_t* __restrict picked) {
  for (Index c = 0; c < channels; ++c) {
    const T value = from[c], largest = best[c];
    const std::int32_t before = picked[c];
    const bool better = (static_cast<int>(value > largest) | static_cast<int>(value != value)) != 0;
    best[c] = better ? value : largest;
    picked[c] = better ? position : before;
  }
}

/// best[c] = the first maximum over the window, or NaN if there is one; picked[c] = its position. For an empty window:
/// minus infinity and -1.
template <class T>
void max_of(const Cover& cover, const T* x, Index channels, T* best, std::int32_t* picked) {
  const auto& taps = cover.taps();
  if (taps.empty()) {
    std::fill_n(best, channels, -std::numeric_limits<T>::infinity());
    std::fill_n(picked, channels, -1);
    return;
  }
  std::copy_n(x + cover.offset(taps[0]), channels, best);
  std::fill_n(picked, channels, taps[0].position);
  for (std::size_t i = 1; i < taps.size(); ++i)
    keep_larger(x + cover.offset(taps[i]), taps[i].position, channels, best, picked);
}

template <class T>
void average_of(const Cover& cover, const T* x, Index channels, Accumulator<T>* __restrict mean) {
  using A = Accumulator<T>;
  std::fill_n(mean, channels, A{0});
  for (const auto& tap : cover.taps()) {
    const T* __restrict from = x + cover.offset(tap);
    for (Index c = 0; c < channels; ++c) mean[c] += static_cast<A>(from[c]);
  }
  const auto divisor = static_cast<A>(cover.divisor());
  for (Index c = 0; c < channels; ++c) mean[c] /= divisor;
}

/// to[c] += dy[c] where this input was picked
template <class T>
void add_where_picked(const T* __restrict dy, const std::int32_t* __restrict picked, std::int32_t position,
                      Index channels, Accumulator<T>* __restrict to) {
  for (Index c = 0; c < channels; ++c) {
    const auto before = to[c], after = before + static_cast<Accumulator<T>>(dy[c]);
    to[c] = picked[c] == position ? after : before;
  }
}

/// Makes one pass per tap, which vectorizes, and touches no more memory than the forward pass did.
template <class T>
void spread_max(const Cover& cover, const T* dy, const std::int32_t* picked, Index channels, Accumulator<T>* dx) {
  for (const auto& tap : cover.taps()) add_where_picked(dy, picked, tap.position, channels, dx + cover.offset(tap));
}

template <class T>
void spread_average(const Cover& cover, const T* __restrict dy, Index channels, Accumulator<T>* dx) {
  using A = Accumulator<T>;
  const auto divisor = static_cast<A>(cover.divisor());
  for (const auto& tap : cover.taps()) {
    A* __restrict to = dx + cover.offset(tap);
    for (Index c = 0; c < channels; ++c) to[c] += static_cast<A>(dy[c]) / divisor;
  }
}

}  // namespace

void ReferenceBackend::pool_forward(const Pooling& pooling, const Tensor& x, const Tensor& y, const Tensor& picked,
                                    const Box& part, Stream) {
  if (part.empty()) return;
  check_pool(pooling, x, y, picked, part);
  const Index channels = y.box().extent(1);
  Cover cover(pooling, x);
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    const Scratch<Accumulator<T>> mean(channels);
    for_outputs(y, part, cover, [&](Index at) {
      T* to = y.as<T>() + at;
      if (pooling.kind == PoolKind::max) return max_of(cover, x.as<T>(), channels, to, picked.as<std::int32_t>() + at);
      average_of(cover, x.as<T>(), channels, mean.data());
      for (Index c = 0; c < channels; ++c) to[c] = static_cast<T>(mean[c]);
    });
  });
}

void ReferenceBackend::pool_backward(const Pooling& pooling, const Tensor& dy, const Tensor& picked, const Tensor& dx,
                                     const Box& part, Stream) {
  if (part.empty() || dx.volume() == 0) return;
  check_pool(pooling, dx, dy, picked, part);
  const Index channels = dy.box().extent(1);
  Cover cover(pooling, dx);
  dispatch_float(dx.dtype(), [&](auto t) {
    using T = decltype(t);
    const Widened<T> sums(dx.as<T>(), dx.volume());
    for_outputs(dy, part, cover, [&](Index at) {
      const T* from = dy.as<T>() + at;
      if (pooling.kind == PoolKind::max)
        spread_max(cover, from, picked.as<std::int32_t>() + at, channels, sums.data());
      else
        spread_average(cover, from, channels, sums.data());
    });
    sums.store();
  });
}

}  // namespace partita
