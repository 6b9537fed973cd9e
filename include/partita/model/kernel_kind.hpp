#pragma once

#include <cstdint>
#include <string_view>

namespace partita {

/// Kinds of kernels for which a machine file may give an efficiency of their own.
enum class KernelKind : std::uint8_t { others, conv, product };

/// The kind's name in machine files: "others", "conv", "product".
std::string_view name(KernelKind kind);

}  // namespace partita
