#include "geometry.hpp"
#include "multiply.hpp"
#include "reference.hpp"
#include "scratch.hpp"

namespace partita {

namespace {

/// Calls run(column, length, offset) for the pieces of one row of the im2col matrix, in order: `length` neighbouring
/// inputs from `offset` on in x's memory, or zeros where offset is negative.
template <class Run>
void for_runs(const ConvGeometry& conv, const Lattice& x, const Position& out, Run&& run) {
  const auto& [slide_d, slide_h, slide_w] = conv.windows;
  const Position start = first_input(conv.windows, out);
  Index column = 0;
  const auto emit = [&](Index taps, Index offset) {
    if (taps > 0) run(column, taps * conv.channels, offset);
    column += taps * conv.channels;
  };
  for (Index kd = 0; kd < slide_d.kernel; ++kd) {
    for (Index kh = 0; kh < slide_h.kernel; ++kh) {
      Position at{start[0], start[1] + kd * slide_d.dilation, start[2] + kh * slide_h.dilation, start[3]};
      if (!x.holds(1, at[1]) || !x.holds(2, at[2])) {
        emit(slide_w.kernel, -1);
      } else if (slide_w.dilation == 1) {  // neighbours along W are neighbours in memory
        const Interval reach{at[3], at[3] + slide_w.kernel};
        const Interval inside = intersect(reach, x.sides[3]);
        const Index before = inside.empty() ? slide_w.kernel : inside.lo - reach.lo;
        emit(before, -1);
        at[3] = inside.lo;
        emit(inside.extent(), x.offset(at));
        emit(slide_w.kernel - before - inside.extent(), -1);
      } else {
        for (Index kw = 0; kw < slide_w.kernel; ++kw, at[3] += slide_w.dilation)
          emit(1, x.holds(3, at[3]) ? x.offset(at) : -1);
      }
    }
  }
}

/// A convolution as matrix products over blocks of outputs: y[o,f] = columns[o,taps] w[f,taps]'.
template <class T>
class Lowered {
 public:
  using A = Accumulator<T>;

  /// `x` and `y` stand for the input's and the output's side, values or gradients.
  Lowered(const ConvGeometry& conv, const Tensor& x, const Tensor& y)
      : conv_(conv),
        x_(x),
        y_(y),
        outputs_(conv.out),
        taps_(conv.taps()),
        filters_(conv.filters),
        block_(std::min(outputs_.count(), std::clamp(block_elements / taps_, Index{64}, Index{4096}))),
        columns_(block_ * taps_),
        sums_(block_ * filters_) {}

  /// Calls f(rows) for each block of outputs in turn.
  template <class F>
  void for_blocks(F&& f) {
    for (begin_ = 0; begin_ < outputs_.count(); begin_ += block_) f(std::min(block_, outputs_.count() - begin_));
  }

  /// columns = the inputs that each output of the block reads.
  void read_columns(const T* x, Index rows) const {
    for (Index r = 0; r < rows; ++r) {
      A* row = columns() + r * taps_;
      for_runs(conv_, x_, outputs_[begin_ + r], [&](Index column, Index length, Index offset) {
        if (offset < 0)
          std::fill_n(row + column, length, A{0});
        else
          for (Index i = 0; i < length; ++i) row[column + i] = static_cast<A>(x[offset + i]);
      });
    }
  }
  /// The adjoint of read_columns: dx += columns, each where it was read.
  void add_columns(A* dx, Index rows) const {
    for (Index r = 0; r < rows; ++r) {
      const A* row = columns() + r * taps_;
      for_runs(conv_, x_, outputs_[begin_ + r], [&](Index column, Index length, Index offset) {
        if (offset >= 0)
          for (Index i = 0; i < length; ++i) dx[offset + i] += row[column + i];
      });
    }
  }
  /// sums = dy of the block's outputs.
  void read_outputs(const T* dy, Index rows) const {
    for (Index r = 0; r < rows; ++r) {
      const T* from = dy + y_.offset(outputs_[begin_ + r]);
      for (Index f = 0; f < filters_; ++f) sums_[r * filters_ + f] = static_cast<A>(from[f]);
    }
  }
  /// y of the block's outputs = sums + bias.
  void write_outputs(T* y, const T* bias, Index rows) const {
    for (Index r = 0; r < rows; ++r) {
      T* to = y + y_.offset(outputs_[begin_ + r]);
      const A* from = sums() + r * filters_;
      if (bias == nullptr)
        for (Index f = 0; f < filters_; ++f) to[f] = static_cast<T>(from[f]);
      else
        for (Index f = 0; f < filters_; ++f) to[f] = static_cast<T>(from[f] + static_cast<A>(bias[f]));
    }
  }

  A* columns() const { return columns_.data(); }  ///< [o, taps]
  A* sums() const { return sums_.data(); }        ///< [o, f]

 private:
  static constexpr Index block_elements = Index{1} << 17;  // a block's columns stay in the second-level cache
  const ConvGeometry& conv_;
  Lattice x_, y_;
  Positions outputs_;
  Index taps_, filters_;
  Index block_;
  Index begin_ = 0;
  Scratch<A> columns_, sums_;
};

}  // namespace

void fill_bias(const Tensor& bias, const Tensor& y) {
  if (!bias || y.volume() == 0) return y.zero();
  const Index filters = y.box().extent(1);
  require(bias.volume() == filters && bias.dtype() == y.dtype(), "one bias a filter");
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    for (Index at = 0; at < y.volume(); at += filters) std::copy_n(bias.as<T>(), filters, y.as<T>() + at);
  });
}

void ReferenceBackend::conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w,
                                    const Tensor& bias, const Tensor& y, Stream) {
  const ConvGeometry conv(windows, x, w, y);
  if (conv.out != y.box() || conv.empty()) fill_bias(bias, y);
  if (conv.empty()) return;
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    Lowered<T> lowered(conv, x, y);
    const Widened<T> weights(w.as<T>(), w.volume());
    const Index taps = conv.taps(), filters = conv.filters;
    lowered.for_blocks([&](Index rows) {
      lowered.read_columns(x.as<T>(), rows);
      multiply<A>(false, true, rows, filters, taps, 1, lowered.columns(), taps, weights.data(), taps, 0, lowered.sums(),
                  filters);
      lowered.write_outputs(y.as<T>(), bias ? bias.as<T>() : nullptr, rows);
    });
  });
}

void ReferenceBackend::conv_backward_data(std::span<const Window> windows, const Tensor& dy, const Tensor& w,
                                          const Tensor& dx, Stream) {
  const ConvGeometry conv(windows, dx, w, dy);
  dx.zero();
  if (conv.empty()) return;
  dispatch_float(dx.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    Lowered<T> lowered(conv, dx, dy);
    const Widened<T> weights(w.as<T>(), w.volume()), sums(dx.as<T>(), dx.volume());
    const Index taps = conv.taps(), filters = conv.filters;
    lowered.for_blocks([&](Index rows) {
      lowered.read_outputs(dy.as<T>(), rows);
      multiply<A>(false, false, rows, taps, filters, 1, lowered.sums(), filters, weights.data(), taps, 0,
                  lowered.columns(), taps);
      lowered.add_columns(sums.data(), rows);
    });
    sums.store();
  });
}

void ReferenceBackend::conv_backward_filter(std::span<const Window> windows, const Tensor& x, const Tensor& dy,
                                            const Tensor& dw, Stream) {
  const ConvGeometry conv(windows, x, dw, dy);
  if (conv.empty()) return;
  dispatch_float(dw.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    Lowered<T> lowered(conv, x, dy);
    const Widened<T> sums(dw.as<T>(), dw.volume());
    const Index taps = conv.taps(), filters = conv.filters;
    lowered.for_blocks([&](Index rows) {
      lowered.read_outputs(dy.as<T>(), rows);
      lowered.read_columns(x.as<T>(), rows);
      multiply<A>(true, false, filters, taps, rows, 1, lowered.sums(), filters, lowered.columns(), taps, 1, sums.data(),
                  taps);
    });
    sums.store();
  });
}

}  // namespace partita
