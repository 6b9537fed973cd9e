#pragma once

#include "src/backend/common/scratch.hpp"

#include <array>
#include <type_traits>

namespace partita {

/// Returns the sum of value(c) over the channels of a row. Vector instructions add to several partial sums at once; the
/// elements of a single sum would have to be added one by one.
template <class A, class Value>
A sum_of_row(Index channels, const Value& value) {
  constexpr Index lanes = 32;
  std::array<A, lanes> sums{};
  Index c = 0;
  for (; c + lanes <= channels; c += lanes)
    for (Index lane = 0; lane < lanes; ++lane) sums[lane] += value(c + lane);
  for (Index lane = 0; c + lane < channels; ++lane) sums[lane] += value(c + lane);
  for (Index half = lanes / 2; half > 0; half /= 2)
    for (Index lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

/// Rows in the type of sums: a row itself, or a copy of it for 16-bit types.
template <class T>
class WideRow {
 public:
  using A = Accumulator<T>;
  explicit WideRow(Index channels) : channels_(channels), copy_(std::is_same_v<T, A> ? 0 : channels) {}
  const A* operator()(const T* row) const {
    if constexpr (std::is_same_v<T, A>) return row;
    for (Index c = 0; c < channels_; ++c) copy_[c] = static_cast<A>(row[c]);
    return copy_.data();
  }

 private:
  Index channels_;
  Scratch<A> copy_;
};

}  // namespace partita
