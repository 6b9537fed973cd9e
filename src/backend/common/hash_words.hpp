#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace partita {

/// Hashes a value as raw memory. The type has no padding bytes, and its size is a multiple of 8.
template <class T>
std::size_t hash_words(const T& value) {
  static_assert(std::has_unique_object_representations_v<T> && sizeof(T) % sizeof(std::uint64_t) == 0);
  std::uint64_t h = 0xCBF29CE484222325;
  for (const auto word : std::bit_cast<std::array<std::uint64_t, sizeof(T) / sizeof(std::uint64_t)>>(value))
    h = (h ^ word) * 0x9E3779B97F4A7C15;
  return static_cast<std::size_t>(h ^ (h >> 32));
}

/// The same for unordered containers.
struct HashWords {
  template <class T>
  std::size_t operator()(const T& value) const {
    return hash_words(value);
  }
};

}  // namespace partita
