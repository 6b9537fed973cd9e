#include "partita/base/memory_use.hpp"

#include <fmt/format.h>

#include <numeric>

namespace partita {

std::string_view name(MemoryClass memory) {
  constexpr std::array<std::string_view, memory_classes> names{"weights", "gradients", "optimizer", "activations",
                                                               "halos",   "workspace", "data",      "shared"};
  return names[static_cast<std::size_t>(memory)];
}

std::string print_bytes(Index count) {
  constexpr std::array<const char*, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(count);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", count) : fmt::format("{:.1f} {}", value, units[unit]);
}

std::string MemoryUse::print() const {
  std::string text;
  for (std::size_t i = 0; i < memory_classes; ++i)
    if (bytes[i] > 0)
      text +=
          fmt::format("{}{} {}", text.empty() ? "" : ", ", name(static_cast<MemoryClass>(i)), print_bytes(bytes[i]));
  return text.empty() ? "none" : text;
}

Index MemoryUse::total() const { return std::accumulate(bytes.begin(), bytes.end(), Index{0}); }

MemoryUse& MemoryUse::operator+=(const MemoryUse& other) {
  for (std::size_t i = 0; i < memory_classes; ++i) bytes[i] += other.bytes[i];
  return *this;
}

}  // namespace partita
