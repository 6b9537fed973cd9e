#pragma once

#include "partita/base/accumulator.hpp"
#include "partita/base/resampling.hpp"
#include "src/backend/common/lattice.hpp"
#include "src/backend/gpu/functors/launcher.hpp"
#include "src/backend/gpu/functors/to_element.hpp"

#include <algorithm>

namespace partita {

template <class T>
struct KeepScaled {
  T* y;
  double scale;
  Index channels;
  PARTITA_HOST_DEVICE void operator()(Index sample, Index c, const Sums<double, 1>& sum) const {
    y[sample * channels + c] = to_element<T>(scale * sum.of[0]);
  }
};

/// dx[n,c,...] = scale * dy[n,c]. A part is a sample, a row a position.
template <class T>
struct Spread {
  using A = Accumulator<T>;
  Inputs<> in;
  T* out;
  const T* dy;
  A scale;
  Index channels;
  PARTITA_HOST_DEVICE auto column(Index sample, Index c) const {
    return [dx = to_element<T>(scale * static_cast<A>(dy[sample * channels + c]))](Index /*row*/) { return dx; };
  }
};

/// How the three spatial dimensions are resampled. A dimension that the tensor lacks keeps its only position.
struct Resamplings {
  explicit Resamplings(std::span<const Resampling> dims) {
    for (Resampling& each : of) each = {.kind = Resampling::Kind::crop};
    std::copy(dims.begin(), dims.end(), of.end() - static_cast<std::ptrdiff_t>(dims.size()));
  }
  std::array<Resampling, 3> of{};
};

/// A weighted mean of up to eight inputs. A row is an output.
template <class T>
struct Resample {
  Resamplings dims;
  Positions outputs;
  Lattice inputs;
  const T* x;
  T* y;
  Index channels;
  PARTITA_HOST_DEVICE void operator()(Index row, Index c) const {
    using A = Accumulator<T>;
    const Position out = outputs[row];
    const std::array<Resampling::Taps, 3> taps{dims.of[0].taps(out[1]), dims.of[1].taps(out[2]),
                                               dims.of[2].taps(out[3])};
    A sum = 0;
    for (unsigned corner = 0; corner < 8; ++corner) {
      Position in = out;
      double weight = 1;
      for (std::size_t d = 0; d < 3; ++d) {
        const std::size_t side = corner >> d & 1U;
        in[d + 1] = taps[d].in[side];
        weight *= taps[d].weight[side];
      }
      if (weight != 0) sum += static_cast<A>(weight) * static_cast<A>(x[inputs.offset(in) + c]);
    }
    y[row * channels + c] = to_element<T>(sum);
  }
};

/// Adds to one input what the outputs that read it give back. A row is an input.
template <class T>
struct ResampleBackward {
  Resamplings dims;
  Positions inputs;
  Lattice outputs;
  const T* dy;
  T* dx;
  Index channels;
  PARTITA_HOST_DEVICE void operator()(Index row, Index c) const {
    using A = Accumulator<T>;
    const Position in = inputs[row];
    T& to = dx[row * channels + c];
    A sum = static_cast<A>(to);
    const Interval d = readers(0, in[1]), h = readers(1, in[2]), w = readers(2, in[3]);
    if (!outputs.holds(0, in[0])) return;
    for (Index i = d.lo; i < d.hi; ++i)
      for (Index j = h.lo; j < h.hi; ++j)
        for (Index k = w.lo; k < w.hi; ++k) {
          const double weight = share(0, i, in[1]) * share(1, j, in[2]) * share(2, k, in[3]);
          if (weight != 0) sum += static_cast<A>(weight) * static_cast<A>(dy[outputs.offset({in[0], i, j, k}) + c]);
        }
    to = to_element<T>(sum);
  }

 private:
  /// An interval, inside dy's box, that holds all outputs which read an input.
  PARTITA_HOST_DEVICE Interval readers(std::size_t dim, Index in) const {
    const Resampling& how = dims.of[dim];
    const Interval side = outputs.sides[dim + 1];
    Interval all{in * how.factor, (in + 1) * how.factor};
    if (how.kind == Resampling::Kind::crop) all = {in - how.first, in - how.first + 1};
    if (how.kind == Resampling::Kind::linear) all = {(in - 1) * how.factor, (in + 2) * how.factor};
    return {all.lo > side.lo ? all.lo : side.lo, all.hi < side.hi ? all.hi : side.hi};
  }
  /// The weight with which an output reads an input.
  PARTITA_HOST_DEVICE double share(std::size_t dim, Index out, Index in) const {
    const Resampling::Taps taps = dims.of[dim].taps(out);
    return (taps.in[0] == in ? taps.weight[0] : 0) + (taps.in[1] == in ? taps.weight[1] : 0);
  }
};

/// Copies between the positions of blocks and channels. A row is a position of x.
template <class T>
struct MoveBlocks {
  Positions places;
  Lattice inputs, outputs;
  std::array<Index, 3> block;
  const T* from;
  T* to;
  bool gathers;  // from blocks into channels; else back
  PARTITA_HOST_DEVICE void operator()(Index row, Index c) const {
    const Position in = places[row];
    Position out = in;
    Index turn = 0, per = 1;
    for (std::size_t d = 0; d < 3; ++d) {
      out[d + 1] = in[d + 1] / block[d];
      turn = turn * block[d] + in[d + 1] % block[d];
      per *= block[d];
    }
    for (std::size_t d = 0; d < 4; ++d)
      if (!outputs.holds(d, out[d])) return;
    const Index at = inputs.offset(in) + c, channel = outputs.offset(out) + c * per + turn;
    if (gathers)
      to[channel] = from[at];
    else
      to[at] = from[channel];
  }
};

}  // namespace partita
