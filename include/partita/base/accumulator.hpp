#pragma once

#include <type_traits>

namespace partita {

/// The type that accumulates sums of T: double for double, float for all shorter types.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

}  // namespace partita
