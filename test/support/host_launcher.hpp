#pragma once

#include "src/backend/gpu/functors/launcher.hpp"

#include <array>
#include <limits>
#include <span>

namespace partita::test {

/// Runs functors on the CPU, one call after the other. The scratch memory is small, so that kernels run in chunks.
class HostLauncher {
 public:
  std::span<std::byte> scratch() const {
    thread_local std::array<double, 40> memory;
    return std::as_writable_bytes(std::span(memory));
  }
  template <class F>
  void for_elements(const Stack& size, const F& f, Stream) const {
    each_column(size, [&](Index part, Index column) {
      const auto g = f.column(part, column);
      if constexpr (HasOnce<F>)
        if (size.rows > 0) f.once(part, column);
      for (Index row = 0; row < size.rows; ++row) {
        const Index at = size.offset(part, row, column);
        f.out[at] = value_at(f, g, row, at);
      }
    });
  }
  template <class F>
  void for_each(Index rows, Index columns, const F& f, Stream) const {
    for (Index row = 0; row < rows; ++row)
      for (Index column = 0; column < columns; ++column) f(row, column);
  }
  template <class F>
  void for_ragged(const Lengths& lengths, const F& f, Stream) const {
    for (Index group = 0; group < lengths.groups; ++group)
      for (Index i = 0; i < lengths[group]; ++i) f(group, i);
  }
  template <class A, std::size_t K, class Value, class Finish>
  void reduce(Index groups, Index length, const Value& value, const Finish& finish, Stream) const {
    for (Index group = 0; group < groups; ++group) finish(group, sum_of<A, K>(group, length, value));
  }
  template <class A, std::size_t K, class Value, class Finish>
  void reduce_ragged(const Lengths& lengths, const Value& value, const Finish& finish, Stream) const {
    for (Index group = 0; group < lengths.groups; ++group) finish(group, sum_of<A, K>(group, lengths[group], value));
  }
  template <class A, std::size_t K, class Value, class Finish>
  void reduce_columns(const Stack& size, const Value& value, const Finish& finish, Stream) const {
    each_column(size, [&](Index part, Index column) {
      const auto g = value.column(part, column);
      Sums<A, K> sums;
      for (Index row = 0; row < size.rows; ++row) sums += value_at(value, g, row, size.offset(part, row, column));
      finish(part, column, sums);
    });
  }
  template <class Value, class Finish>
  void largest(Index groups, Index length, const Value& value, const Finish& finish, Stream) const {
    for (Index group = 0; group < groups; ++group) {
      double largest = -std::numeric_limits<double>::infinity();
      for (Index i = 0; i < length; ++i)
        if (const double next = value(group, i); next > largest || next != next) largest = next;
      finish(group, largest);
    }
  }

 private:
  template <class Visit>
  static void each_column(const Stack& size, const Visit& visit) {
    for (Index part = 0; part < size.parts; ++part)
      for (Index column = 0; column < size.columns; ++column) visit(part, column);
  }
  template <class A, std::size_t K, class Value>
  static Sums<A, K> sum_of(Index group, Index length, const Value& value) {
    Sums<A, K> sums;
    for (Index i = 0; i < length; ++i) sums += value(group, i);
    return sums;
  }
};

}  // namespace partita::test
