// The precompiled header: standard headers and fmt, parsed once per module. The build includes it automatically.
// Sources do not include it; each source includes the headers that it uses.
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
