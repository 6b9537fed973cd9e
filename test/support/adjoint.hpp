#pragma once

#include "partita/base/philox.hpp"
#include "partita/comm/communicator.hpp"
#include "partita/tensor/dist_tensor.hpp"

#include <algorithm>

namespace partita::test {

/// Returns true if `rank` is the first of its group along `axes`.
inline bool is_first(const Grid& grid, int rank, AxisSet axes) { return grid.group(rank, axes).front() == rank; }

/// Returns the sum of `mine` over all ranks.
inline double sum_over(Communicator& comm, double mine) {
  comm.all_reduce(&mine, 1, DType::f64, ReduceOp::sum, {}).wait();
  return mine;
}

/// Returns the inner product of two local tensors that hold the same box.
inline double inner_local(const Tensor& x, const Tensor& y) {
  double sum = 0;
  for (Index i = 0; i < x.volume(); ++i) sum += x.get(i) * y.get(i);
  return sum;
}

/// Returns the inner product <x, y> of two distributed tensors. Their dimensions are sharded in the same way. Over an
/// axis where one of them is partial, the other is replicated. Over axes where both are replicated, only one rank
/// counts. Collective: every rank of `world` calls it.
inline double inner(const DistTensor& x, const DistTensor& y, Communicator& world) {
  const bool counts = is_first(x.layout.grid(), world.rank(), x.layout.replicated() & y.layout.replicated());
  return sum_over(world, counts ? inner_local(x.local, y.local) : 0);
}

/// Returns element i of a test tensor: a small integer, so that sums in any order are exact.
inline double value(std::uint64_t seed, Index i) { return static_cast<double>(Random(seed, 1).bits(i) % 17) - 8; }

/// Fills the tensor whose global elements are `value(seed, i)`. The parts of a pending sum differ and add up to it;
/// replicas are equal.
inline void fill_parts(const DistTensor& x, std::uint64_t seed, int rank) {
  const auto group = x.layout.grid().group(rank, x.layout.partial());
  const auto part = [&](std::size_t place, Index i) { return value(seed + 1000 + place, i); };
  const auto mine = static_cast<std::size_t>(std::find(group.begin(), group.end(), rank) - group.begin());
  fill(x.local, x.layout.shape(), [&](Index i) {
    if (mine > 0) return part(mine, i);
    double rest = value(seed, i);
    for (std::size_t place = 1; place < group.size(); ++place) rest -= part(place, i);
    return rest;
  });
}

/// Sums the parts over the partial axes and returns the number of elements, over all ranks, that differ from
/// `value(seed, i)`.
inline double wrong_elements(const DistTensor& x, std::uint64_t seed, Communicator& along_partial,
                             Communicator& world) {
  Tensor sum = x.local.like(x.local.box());
  add(x.local, sum, {});
  along_partial.all_reduce(sum.data(), sum.volume(), sum.dtype(), ReduceOp::sum, {}).wait();
  Tensor truth = x.local.like(x.local.box());
  fill(truth, x.layout.shape(), [&](Index i) { return value(seed, i); });
  double wrong = 0;
  for (Index i = 0; i < sum.volume(); ++i) wrong += sum.get(i) == truth.get(i) ? 0 : 1;
  return sum_over(world, wrong);
}

}  // namespace partita::test
