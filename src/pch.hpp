// The precompiled header: standard headers and fmt, parsed once per module. The build includes it automatically.
// Sources do not include it; each source includes the headers that it uses.

// In a build without optimization, fmt's header switches -Og on for itself. GCC 12 leaves __OPTIMIZE__ defined after a
// precompiled header that did so, and then its own xmmintrin.h does not compile, which Eigen includes.
#define FMT_GCC_PRAGMA(arg)
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
