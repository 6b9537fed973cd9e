#pragma once

#include "partita/base/host_device.hpp"
#include "partita/base/types.hpp"

#include <array>
#include <cstddef>

// Kernels that no library has are functors: one call computes one element, or one summand of a sum. A launcher runs
// them, on the CPU or on a GPU:
//
//     for_each(rows, columns, f, stream)     f(row, column) once for each pair, in any order
//     for_ragged(lengths, f, stream)         f(group, i) once for each i < lengths[group]
//     reduce<A, K>(groups, length, value, finish, stream)
//                                            finish(group, sum over i < length of value(group, i))
//     reduce_ragged<A, K>(lengths, value, finish, stream)
//                                            the same, with a length for each group
//     reduce_columns<A, K>(parts, rows, columns, value, finish, stream)
//                                            finish(part, column, sum over rows of value(part, row, column))
//     largest(groups, length, value, finish, stream)
//                                            finish(group, maximum over i < length of value(group, i))
//     scratch()                              memory that the kernels of one stream use in turns
//
// value returns Sums<A, K>, for `largest` a double. Sums are formed in a fixed order, so that replicas agree bit for
// bit. finish is called for every group, also where there is nothing to add. Columns are neighbors in memory.

namespace partita {

/// K sums in type A.
template <class A, std::size_t K>
struct Sums {
  std::array<A, K> of{};
  PARTITA_HOST_DEVICE Sums& operator+=(const Sums& other) {
    for (std::size_t k = 0; k < K; ++k) of[k] += other.of[k];
    return *this;
  }
};

/// Up to `most` numbers of elements, in a kernel's own arguments.
struct Lengths {
  static constexpr Index most = 32;
  Index groups = 0;
  std::array<Index, most> length{};
  PARTITA_HOST_DEVICE Index operator[](Index group) const { return length[static_cast<std::size_t>(group)]; }
};

}  // namespace partita
