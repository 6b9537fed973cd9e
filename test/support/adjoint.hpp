#pragma once

#include "partita/base/philox.hpp"
#include "partita/comm/communicator.hpp"
#include "partita/tensor/dist_tensor.hpp"

#include <algorithm>

namespace partita::test {

/// True if `rank` is the first of its group along `axes`.
inline bool is_first(const Grid& grid, int rank, AxisSet axes) { return grid.group(rank, axes).front() == rank; }

/// The sum over all ranks.
inline double sum_over(Communicator& comm, double mine) {
  comm.all_reduce(&mine, 1, DType::f64, ReduceOp::sum, {}).wait();
  return mine;
}

/// Sum of products of the elements of two local tensors of the same box.
inline double inner_local(const Tensor& x, const Tensor& y) {
  double sum = 0;
  for (Index i = 0; i < x.volume(); ++i) sum += x.get(i) * y.get(i);
  return sum;
}

/// <x, y> of the tensors that the parts stand for. Their shards are the same; where one is partial the other is
/// replicated, where both are replicated one rank counts. Collective over the ranks of the grid.
inline double inner(const DistTensor& x, const DistTensor& y, Communicator& world) {
  const bool counts = is_first(x.layout.grid(), world.rank(), x.layout.replicated() & y.layout.replicated());
  return sum_over(world, counts ? inner_local(x.local, y.local) : 0);
}

/// Element i of a test tensor: a small integer, so that sums in any order are exact.
inline double value(std::uint64_t seed, Index i) { return static_cast<double>(Random(seed, 1).bits(i) % 17) - 8; }

/// Fills a tensor that stands for `value(seed, i)`: the parts of a pending sum differ and add up to it, replicas agree.
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

/// How many elements of the group's sum of parts differ from `value(seed, i)`, over all ranks.
inline double wrong_elements(const DistTensor& x, std::uint64_t seed, Communicator& along_partial,
                             Communicator& world) {
  Tensor sum = x.local.like(x.local.box());
  add(x.local, sum);
  along_partial.all_reduce(sum.data(), sum.volume(), sum.dtype(), ReduceOp::sum, {}).wait();
  Tensor truth = x.local.like(x.local.box());
  fill(truth, x.layout.shape(), [&](Index i) { return value(seed, i); });
  double wrong = 0;
  for (Index i = 0; i < sum.volume(); ++i) wrong += sum.get(i) == truth.get(i) ? 0 : 1;
  return sum_over(world, wrong);
}

}  // namespace partita::test
