#pragma once

#include "partita/base/types.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace partita {

/// What a buffer is for. Memory reports count bytes per class. `data` are samples that a data set holds and the order
/// in which they are read; `shared` is the memory through which the ranks of a node exchange messages.
enum class MemoryClass : std::uint8_t { weights, gradients, optimizer, activations, halos, workspace, data, shared };
inline constexpr std::size_t memory_classes = 8;

/// Returns e.g. "weights".
std::string_view name(MemoryClass memory);

/// Returns the bytes of memory that a buffer of `bytes` bytes takes: whole lines of the caches.
constexpr Index bytes_of_block(Index bytes) {
  constexpr Index line = 64;
  return (bytes / line + 1) * line;
}

/// Returns e.g. "1.5 MiB".
std::string print_bytes(Index count);

/// Bytes per memory class.
struct MemoryUse {
  std::array<Index, memory_classes> bytes{};
  Index& operator[](MemoryClass memory) { return bytes[static_cast<std::size_t>(memory)]; }
  Index operator[](MemoryClass memory) const { return bytes[static_cast<std::size_t>(memory)]; }
  Index total() const;
  MemoryUse& operator+=(const MemoryUse& other);
  /// Returns e.g. "weights 1.5 KiB, activations 2.0 MiB", or "none" if all classes are 0.
  std::string print() const;
  bool operator==(const MemoryUse&) const = default;
};

}  // namespace partita
