#include "src/backend/common/geometry.hpp"
#include "src/backend/common/scratch.hpp"
#include "src/backend/cpu/reference.hpp"

namespace partita {

namespace {

/// One input of an output, with its weight.
struct Part {
  Position at;
  double weight;
};

/// Calls f(output, its parts) for each position of y.
template <class F>
void for_parts(std::span<const Resampling> dims, const Tensor& y, F&& f) {
  require(static_cast<int>(dims.size()) + 2 == y.box().dims(), "there must be one resampling per spatial dimension");
  const Positions places(y.box());
  std::vector<Part> parts;
  for (Index i = 0; i < places.count(); ++i) {
    const Position out = places[i];
    parts.assign(1, {out, 1});
    for (std::size_t d = 0; d < dims.size(); ++d) {
      const std::size_t at = 4 - dims.size() + d;
      const auto taps = dims[d].taps(out[at]);
      for (std::size_t p = 0, count = parts.size(); p < count; ++p) {
        if (taps.weight[1] != 0) {
          parts.push_back({parts[p].at, parts[p].weight * taps.weight[1]});
          parts.back().at[at] = taps.in[1];
        }
        parts[p].at[at] = taps.in[0];
        parts[p].weight *= taps.weight[0];
      }
    }
    f(out, parts);
  }
}

/// Calls f(offset in y, turn, offset in x) for each position of x in the blocks of y. `turn` is the position's number
/// in its block; with `per` positions in a block, channel c of x is channel c * per + turn of y.
template <class F>
void for_blocks(std::span<const Index> block, const Tensor& x, const Tensor& y, F&& f) {
  const Lattice inputs = lattice_of(x), outputs = lattice_of(y);
  const Positions places(x.box());
  for (Index i = 0; i < places.count(); ++i) {
    const Position in = places[i];
    Position out = in;
    Index turn = 0;
    for (std::size_t d = 0; d < block.size(); ++d) {
      const std::size_t at = 4 - block.size() + d;
      out[at] = in[at] / block[d];
      turn = turn * block[d] + in[at] % block[d];
    }
    bool inside = true;
    for (std::size_t d = 0; d < 4; ++d) inside = inside && outputs.holds(d, out[d]);
    if (inside) f(outputs.offset(out), turn, inputs.offset(in));
  }
}

Index volume(std::span<const Index> block) {
  Index all = 1;
  for (const Index extent : block) all *= extent;
  return all;
}

}  // namespace

void ReferenceBackend::resample_forward(std::span<const Resampling> dims, const Tensor& x, const Tensor& y, Stream) {
  if (y.volume() == 0) return;
  const Index channels = y.box().extent(1);
  require(x.dtype() == y.dtype() && x.box()[1] == y.box()[1], "x and y must have the same dtype and channels");
  const Lattice inputs = lattice_of(x), outputs = lattice_of(y);
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const Scratch<A> sums(channels);
    for_parts(dims, y, [&](const Position& out, const std::vector<Part>& parts) {
      std::fill_n(sums.data(), channels, A{0});
      for (const auto& [at, weight] : parts) {
        const T* from = x.as<T>() + inputs.offset(at);
        for (Index c = 0; c < channels; ++c) sums[c] += static_cast<A>(weight) * static_cast<A>(from[c]);
      }
      T* to = y.as<T>() + outputs.offset(out);
      for (Index c = 0; c < channels; ++c) to[c] = static_cast<T>(sums[c]);
    });
  });
}

void ReferenceBackend::resample_backward(std::span<const Resampling> dims, const Tensor& dy, const Tensor& dx, Stream) {
  if (dy.volume() == 0 || dx.volume() == 0) return;
  const Index channels = dy.box().extent(1);
  require(dx.dtype() == dy.dtype() && dx.box()[1] == dy.box()[1], "dx and dy must have the same dtype and channels");
  const Lattice inputs = lattice_of(dx), outputs = lattice_of(dy);
  dispatch_float(dx.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const Widened<T> sums(dx.as<T>(), dx.volume());
    for_parts(dims, dy, [&](const Position& out, const std::vector<Part>& parts) {
      const T* from = dy.as<T>() + outputs.offset(out);
      for (const auto& [at, weight] : parts) {
        A* to = sums.data() + inputs.offset(at);
        for (Index c = 0; c < channels; ++c) to[c] += static_cast<A>(weight) * static_cast<A>(from[c]);
      }
    });
    sums.store();
  });
}

void ReferenceBackend::space_to_depth(std::span<const Index> block, const Tensor& x, const Tensor& y, Stream) {
  if (x.volume() == 0 || y.volume() == 0) return;
  const Index channels = x.box().extent(1), per = volume(block);
  require(x.dtype() == y.dtype() && y.box().extent(1) == channels * per,
          "y must have the dtype of x and a channel for each position of a block");
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    for_blocks(block, x, y, [&](Index to, Index turn, Index from) {
      for (Index c = 0; c < channels; ++c) y.as<T>()[to + c * per + turn] = x.as<T>()[from + c];
    });
  });
}

void ReferenceBackend::depth_to_space(std::span<const Index> block, const Tensor& dy, const Tensor& dx, Stream) {
  if (dx.volume() == 0 || dy.volume() == 0) return;
  const Index channels = dx.box().extent(1), per = volume(block);
  require(dx.dtype() == dy.dtype() && dy.box().extent(1) == channels * per,
          "dy must have the dtype of dx and a channel for each position of a block");
  dispatch_float(dx.dtype(), [&](auto t) {
    using T = decltype(t);
    for_blocks(block, dx, dy, [&](Index from, Index turn, Index to) {
      for (Index c = 0; c < channels; ++c) dx.as<T>()[to + c] = dy.as<T>()[from + c * per + turn];
    });
  });
}

}  // namespace partita
