#pragma once

#include "partita/base/accumulator.hpp"
#include "src/backend/common/lattice.hpp"
#include "src/backend/gpu/functors/launcher.hpp"
#include "src/backend/gpu/functors/to_element.hpp"

namespace partita {

/// The arrays of a convolution and how they lie: w[filter, tap, channel of a group]. Sums have the accumulator's type.
template <class T>
struct ConvArrays {
  std::array<Window, 3> windows;
  Lattice x_at, y_at;
  T *x, *w, *y;
  Index channels, filters;
  Index a_group, filters_of_group;  // channels and filters of a group

  PARTITA_HOST_DEVICE Index taps() const { return taps_of(windows); }
  PARTITA_HOST_DEVICE Accumulator<T> weight(Index filter, Index tap, Index channel) const {
    return static_cast<Accumulator<T>>(w[(filter * taps() + tap) * a_group + channel]);
  }
  /// The input that a tap of an output reads. Returns false if it lies outside x.
  PARTITA_HOST_DEVICE bool input(const Position& out, Index tap, Position& in) const {
    in = input_of(windows, out, tap);
    return x_at.holds(in);
  }
};

/// y of an output and filter. A row is an output.
template <class T>
struct Convolve {
  ConvArrays<T> conv;
  Positions outputs;
  const T* bias;  // may be null
  PARTITA_HOST_DEVICE void operator()(Index row, Index filter) const {
    const Position out = outputs[row];
    const Index first = filter / conv.filters_of_group * conv.a_group;
    Accumulator<T> sum = 0;
    for (Index tap = 0; tap < conv.taps(); ++tap) {
      Position in{};
      if (!conv.input(out, tap, in)) continue;
      const T* from = conv.x + conv.x_at.offset(in) + first;
      for (Index c = 0; c < conv.a_group; ++c)
        sum += static_cast<Accumulator<T>>(from[c]) * conv.weight(filter, tap, c);
    }
    if (bias != nullptr) sum += static_cast<Accumulator<T>>(bias[filter]);
    conv.y[row * conv.filters + filter] = to_element<T>(sum);
  }
};

/// dx of an input and channel. A row is an input.
template <class T>
struct ConvolveBack {
  ConvArrays<T> conv;
  Positions inputs;
  PARTITA_HOST_DEVICE void operator()(Index row, Index channel) const {
    const Position in = inputs[row];
    const Index group = channel / conv.a_group, first = group * conv.filters_of_group;
    Accumulator<T> sum = 0;
    for (Index tap = conv.taps(); tap-- > 0;) {
      Position out{};
      if (!find_output(conv.windows, conv.y_at, in, tap, out)) continue;
      const T* from = conv.y + conv.y_at.offset(out);
      for (Index f = first; f < first + conv.filters_of_group; ++f)
        sum += static_cast<Accumulator<T>>(from[f]) * conv.weight(f, tap, channel - group * conv.a_group);
    }
    conv.x[row * conv.channels + channel] = to_element<T>(sum);
  }
};

/// x * dy of one output, for one weight: a group of the reduction.
template <class T>
struct FilterTerm {
  using A = Accumulator<T>;
  ConvArrays<T> conv;
  Positions outputs;
  PARTITA_HOST_DEVICE Sums<A, 1> operator()(Index weight, Index row) const {
    const Index channel = weight % conv.a_group, tap = weight / conv.a_group % conv.taps(),
                filter = weight / conv.a_group / conv.taps();
    const Position out = outputs[row];
    Position in{};
    if (!conv.input(out, tap, in)) return {};
    const Index of_group = filter / conv.filters_of_group * conv.a_group + channel;
    return {{static_cast<A>(conv.x[conv.x_at.offset(in) + of_group]) *
             static_cast<A>(conv.y[conv.y_at.offset(out) + filter])}};
  }
};

template <class T>
struct KeepWeight {
  T* dw;
  bool adds;
  PARTITA_HOST_DEVICE void operator()(Index weight, const Sums<Accumulator<T>, 1>& sum) const {
    const Accumulator<T> before = adds ? static_cast<Accumulator<T>>(dw[weight]) : Accumulator<T>(0);
    dw[weight] = to_element<T>(before + sum.of[0]);
  }
};

/// C[i,j] = alpha * sum over l of op(A)[i,l] op(B)[l,j] + beta * C[i,j]
template <class T>
struct Multiply {
  using A = Accumulator<T>;
  const T *a, *b;
  T* c;
  bool transpose_a, transpose_b;
  Index k, lda, ldb, ldc;
  A alpha, beta;
  PARTITA_HOST_DEVICE void operator()(Index i, Index j) const {
    A sum = 0;
    for (Index l = 0; l < k; ++l)
      sum += static_cast<A>(transpose_a ? a[l * lda + i] : a[i * lda + l]) *
             static_cast<A>(transpose_b ? b[j * ldb + l] : b[l * ldb + j]);
    T& to = c[i * ldc + j];
    to = to_element<T>(alpha * sum + (beta == A(0) ? A(0) : beta * static_cast<A>(to)));
  }
};

}  // namespace partita
