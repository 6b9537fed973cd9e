#pragma once

#include "src/backend/gpu/functors/launcher.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

// Neighboring elements that a thread moves at once. A GPU reaches its memory bandwidth only with loads and stores of up
// to 16 bytes a thread.

namespace partita::cuda {

template <std::size_t bytes>
struct WordOf;
template <>
struct WordOf<2> {
  using Type = std::uint16_t;
};
template <>
struct WordOf<4> {
  using Type = std::uint32_t;
};
template <>
struct WordOf<8> {
  using Type = uint2;
};
template <>
struct WordOf<16> {
  using Type = uint4;
};

/// P neighboring elements in registers.
template <class T, int P>
struct Pack {
  using Word = typename WordOf<sizeof(T) * P>::Type;
  T of[P];

  /// @pre The address is a multiple of the pack's bytes.
  static __device__ Pack at(const T* from) {
    const Word word = *reinterpret_cast<const Word*>(from);
    Pack pack;
    memcpy(static_cast<void*>(&pack), &word, sizeof word);
    return pack;
  }
  __device__ void store(T* to) const {
    Word word;
    memcpy(&word, static_cast<const void*>(this), sizeof word);
    __stcg(reinterpret_cast<Word*>(to), word);  // the compiler splits a plain store
  }
};

/// The functors of P neighboring columns.
template <class G, int P>
struct Columns {
  G of[P];
};

template <class F, int... k>
__device__ auto columns_from(const F& f, Index part, Index column, std::integer_sequence<int, k...>) {
  using G = decltype(f.column(part, column));
  return Columns<G, static_cast<int>(sizeof...(k))>{{f.column(part, column + k)...}};
}
template <int P, class F>
__device__ auto columns_of(const F& f, Index part, Index column) {
  return columns_from(f, part, column, std::make_integer_sequence<int, P>());
}

template <class G, int P, class Take, class... In>
__device__ void take_values(const Columns<G, P>& g, Index row, const Take& take, const Pack<In, P>&... in) {
#pragma unroll
  for (int k = 0; k < P; ++k) take(k, g.of[k](row, in.of[k]...));
}

/// Calls take(k, value) with what each of P neighboring columns computes from its element. `at` is the number of the
/// first element.
template <class F, class G, int P, class Take>
__device__ void for_values(const F& f, const Columns<G, P>& g, Index row, Index at, const Take& take) {
  f.in.apply([&]<class... In>(const In*... in) { take_values(g, row, take, Pack<In, P>::at(in + at)...); });
}

/// The type of the elements that a functor of for_elements writes.
template <class F>
using Out = std::remove_pointer_t<decltype(F::out)>;

template <class... In>
constexpr std::size_t largest_of(const Inputs<In...>*) {
  return std::max({sizeof(std::uint16_t), sizeof(In)...});
}
/// The bytes of the largest element that a functor reads.
template <class F>
constexpr std::size_t element_read = largest_of(static_cast<decltype(F::in)*>(nullptr));

/// Whether packs of P elements may start at the arrays' first elements.
template <int P, class... In>
bool all_aligned(const Inputs<In...>& in) {
  return in.apply(
      [](const auto*... each) { return (... && (reinterpret_cast<std::uintptr_t>(each) % (P * sizeof(*each)) == 0)); });
}

}  // namespace partita::cuda
