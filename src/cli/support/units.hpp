#pragma once

namespace partita::cli {

/// Factors from seconds to milliseconds, and from MiB to bytes.
inline constexpr double ms = 1e3, mib = 1 << 20;

}  // namespace partita::cli
