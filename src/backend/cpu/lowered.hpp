#pragma once

#include "src/backend/common/geometry.hpp"
#include "src/backend/common/scratch.hpp"

#include "partita/base/dispatch.hpp"

#include <algorithm>

// Convolutions as matrix products over blocks of outputs (im2col). The product is a parameter:
//   multiply(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc) computes C = op(A) op(B) + beta C.

namespace partita {

/// Calls run(column, length, offset) for the pieces of one row of the im2col matrix, in order. A piece is `length`
/// adjacent elements of x's memory, from `offset` on, or zeros if `offset` is negative.
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
      } else if (slide_w.dilation == 1) {  // neighbors along W are neighbors in memory
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

/// The matrices of a lowered convolution, for one block of outputs at a time: columns[o,taps] holds the inputs that
/// each output o reads, and outputs[o,f] the outputs. A matrix that exists in a tensor's memory is used in place: the
/// columns of a 1x1 convolution with stride 1, and the outputs if all of y's box is computed.
template <class T>
class Lowered {
 public:
  using A = Accumulator<T>;

  /// `x` and `y` are the tensors on the input's and the output's side: values or gradients.
  Lowered(const ConvGeometry& conv, const Tensor& x, const Tensor& y)
      : conv_(conv),
        x_(lattice_of(x)),
        y_(lattice_of(y)),
        outputs_(conv.out),
        taps_(conv.taps()),
        filters_(conv.filters),
        columns_in_place_(!is_short && conv.pointwise() && conv.in == x.box()),
        outputs_in_place_(!is_short && conv.out == y.box()),
        block_(block()),
        columns_(columns_in_place_ ? 0 : block_ * taps_),
        sums_(outputs_in_place_ ? 0 : block_ * filters_) {}

  /// Calls f(rows) for each block of outputs, where `rows` is the number of outputs in the block.
  template <class F>
  void for_blocks(F&& f) {
    for (begin_ = 0; begin_ < outputs_.count(); begin_ += block_) f(std::min(block_, outputs_.count() - begin_));
  }

  /// Returns the inputs that each output of the block reads.
  const A* read_columns(const T* x, Index rows) const {
    if constexpr (!is_short)
      if (columns_in_place_) return x + begin_ * taps_;
    for (Index r = 0; r < rows; ++r) {
      A* row = columns_.data() + r * taps_;
      for_runs(conv_, x_, outputs_[begin_ + r], [&](Index column, Index length, Index offset) {
        if (offset < 0)
          std::fill_n(row + column, length, A{0});
        else
          for (Index i = 0; i < length; ++i) row[column + i] = static_cast<A>(x[offset + i]);
      });
    }
    return columns_.data();
  }
  /// True if the columns are x itself, so that they need not be added to it.
  bool columns_in_place() const { return columns_in_place_; }
  /// Returns the memory in which to compute columns that are then added to dx.
  A* new_columns(A* dx) const { return columns_in_place_ ? dx + begin_ * taps_ : columns_.data(); }
  /// The adjoint of read_columns: dx += columns. Each column goes to the place that it was read from.
  void add_columns(A* dx, Index rows) const {
    if (columns_in_place_) return;
    for (Index r = 0; r < rows; ++r) {
      const A* row = columns_.data() + r * taps_;
      for_runs(conv_, x_, outputs_[begin_ + r], [&](Index column, Index length, Index offset) {
        if (offset >= 0)
          for (Index i = 0; i < length; ++i) dx[offset + i] += row[column + i];
      });
    }
  }
  /// Returns dy of the block's outputs.
  const A* read_outputs(const T* dy, Index rows) const {
    if constexpr (!is_short)
      if (outputs_in_place_) return dy + begin_ * filters_;
    for (Index r = 0; r < rows; ++r) {
      const T* from = dy + y_.offset(outputs_[begin_ + r]);
      for (Index f = 0; f < filters_; ++f) sums_[r * filters_ + f] = static_cast<A>(from[f]);
    }
    return sums_.data();
  }
  /// Returns the memory in which to compute the block's sums for y.
  A* new_outputs(T* y) const {
    if constexpr (!is_short)
      if (outputs_in_place_) return y + begin_ * filters_;
    return sums_.data();
  }
  /// Writes y of the block's outputs: sums + bias.
  void write_outputs(T* y, const T* bias, Index rows) const {
    if (outputs_in_place_ && bias == nullptr) return;
    for (Index r = 0; r < rows; ++r) {
      T* to = y + y_.offset(outputs_[begin_ + r]);
      const A* from = new_outputs(y) + r * filters_;
      for (Index f = 0; f < filters_; ++f)
        to[f] = static_cast<T>(from[f] + (bias == nullptr ? A{0} : static_cast<A>(bias[f])));
    }
  }

 private:
  static constexpr bool is_short = !std::is_same_v<T, A>;

  /// Returns the number of outputs in a block. Either its columns fit into the second-level cache, or they have as many
  /// bytes as the weights, which every block reads.
  Index block() const {
    constexpr Index cached = Index{1} << 17, least = 64, most = 4096;
    const Index all = std::max(outputs_.count(), Index{1});
    if (columns_in_place_ && outputs_in_place_) return all;
    return std::min(all, std::clamp(std::max(cached / taps_, filters_), least, most));
  }

  const ConvGeometry& conv_;
  Lattice x_, y_;
  Positions outputs_;
  Index taps_, filters_;
  bool columns_in_place_, outputs_in_place_;
  Index block_;
  Index begin_ = 0;
  Scratch<A> columns_, sums_;
};

/// y[o,f] = columns(x)[o,taps] w[f,taps]' + bias[f] for the outputs in conv.out
template <class T, class Multiply>
void lowered_forward(const ConvGeometry& conv, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y,
                     Multiply&& multiply) {
  using A = Accumulator<T>;
  Lowered<T> lowered(conv, x, y);
  const Widened<T> weights(w.as<T>(), w.volume());
  const Index taps = conv.taps(), filters = conv.filters;
  lowered.for_blocks([&](Index rows) {
    const auto* columns = lowered.read_columns(x.as<T>(), rows);
    multiply(false, true, rows, filters, taps, columns, taps, weights.data(), taps, A{0},
             lowered.new_outputs(y.as<T>()), filters);
    lowered.write_outputs(y.as<T>(), bias ? bias.as<T>() : nullptr, rows);
  });
}

/// columns(dx)[o,taps] = dy[o,f] w[f,taps], where each column is added to the input that it was read from
template <class T, class Multiply>
void lowered_backward_data(const ConvGeometry& conv, const Tensor& dy, const Tensor& w, const Tensor& dx,
                           Multiply&& multiply) {
  using A = Accumulator<T>;
  Lowered<T> lowered(conv, dx, dy);
  if (!lowered.columns_in_place()) dx.zero({});
  const Widened<T> weights(w.as<T>(), w.volume()), sums(dx.as<T>(), dx.volume());
  const Index taps = conv.taps(), filters = conv.filters;
  lowered.for_blocks([&](Index rows) {
    const auto* outputs = lowered.read_outputs(dy.as<T>(), rows);
    multiply(false, false, rows, taps, filters, outputs, filters, weights.data(), taps, A{0},
             lowered.new_columns(sums.data()), taps);
    lowered.add_columns(sums.data(), rows);
  });
  sums.store();
}

/// dw[f,taps] = dy[o,f]' columns(x)[o,taps], or dw += this product
template <class T, class Multiply>
void lowered_backward_filter(const ConvGeometry& conv, const Tensor& x, const Tensor& dy, const Tensor& dw, Write write,
                             Multiply&& multiply) {
  using A = Accumulator<T>;
  Lowered<T> lowered(conv, x, dy);
  const Widened<T> sums(dw.as<T>(), dw.volume());
  A before = write == Write::over ? A{0} : A{1};
  const Index taps = conv.taps(), filters = conv.filters;
  lowered.for_blocks([&](Index rows) {
    const auto* outputs = lowered.read_outputs(dy.as<T>(), rows);
    const auto* columns = lowered.read_columns(x.as<T>(), rows);
    multiply(true, false, filters, taps, rows, outputs, filters, columns, taps, before, sums.data(), taps);
    before = A{1};
  });
  sums.store();
}

}  // namespace partita
