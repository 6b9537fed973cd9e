#pragma once

#include "partita/base/host_device.hpp"
#include "partita/base/types.hpp"

#include <array>
#include <cstddef>

// Kernels that no library has are functors: one call computes one element, or one summand of a sum. A launcher runs
// them, on the CPU or on a GPU:
//
//     for_elements(size, f, stream)          f.out = f.column(part, column)(row, f.in...) for each element of a Stack,
//                                            and, if f has it, f.once(part, column) for each column with elements
//     for_each(rows, columns, f, stream)     f(row, column) once for each pair, in any order
//     for_ragged(lengths, f, stream)         f(group, i) once for each i < lengths[group]; i may be of 32 or 64 bits
//     reduce<A, K>(groups, length, value, finish, stream)
//                                            finish(group, sum over i < length of value(group, i))
//     reduce_ragged<A, K>(lengths, value, finish, stream)
//                                            the same, with a length for each group
//     reduce_columns<A, K>(size, value, finish, stream)
//                                            finish(part, column, sum over rows of
//                                                                 value.column(part, column)(row, value.in...))
//     largest(groups, length, value, finish, stream)
//                                            finish(group, maximum over i < length of value(group, i))
//     scratch()                              memory that the kernels of one stream use in turns
//
// value returns Sums<A, K>, for `largest` a double. Sums are formed in a fixed order, so that replicas agree bit for
// bit. finish is called for every group, also where there is nothing to add. Columns are neighbors in memory.
//
// The functors of for_elements and reduce_columns do not read or write their arrays themselves, so that a launcher can
// move several neighboring elements at once. What is the same for all rows of a column, they compute once.

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

/// The sizes of dense arrays. Element (part, row, column) has the number (part * rows + row) * columns + column.
struct Stack {
  Index parts = 1, rows = 1, columns = 1;
  PARTITA_HOST_DEVICE Index volume() const { return parts * rows * columns; }
  PARTITA_HOST_DEVICE Index offset(Index part, Index row, Index column) const {
    return (part * rows + row) * columns + column;
  }
};

/// The arrays that a functor reads: up to three. (std::apply does not run on a GPU.)
template <class... In>
struct Inputs;
template <>
struct Inputs<> {
  template <class F>
  PARTITA_HOST_DEVICE auto apply(const F& f) const {
    return f();
  }
};
template <class A>
struct Inputs<A> {
  const A* a;
  template <class F>
  PARTITA_HOST_DEVICE auto apply(const F& f) const {
    return f(a);
  }
};
template <class A, class B>
struct Inputs<A, B> {
  const A* a;
  const B* b;
  template <class F>
  PARTITA_HOST_DEVICE auto apply(const F& f) const {
    return f(a, b);
  }
};

template <class A, class B, class C>
struct Inputs<A, B, C> {
  const A* a;
  const B* b;
  const C* c;
  template <class F>
  PARTITA_HOST_DEVICE auto apply(const F& f) const {
    return f(a, b, c);
  }
};

template <class F>
concept HasOnce = requires(const F& f) {
  f.once(Index(0), Index(0));
};

/// Returns what g, which is f.column(part, column), computes from the elements with number `at`.
template <class F, class G>
PARTITA_HOST_DEVICE auto value_at(const F& f, const G& g, Index row, Index at) {
  return f.in.apply([&](const auto*... in) { return g(row, in[at]...); });
}

/// Up to `most` numbers of elements, in a kernel's own arguments.
struct Lengths {
  static constexpr Index most = 32;
  Index groups = 0;
  std::array<Index, most> length{};
  PARTITA_HOST_DEVICE Index operator[](Index group) const { return length[group]; }
};

}  // namespace partita
