#pragma once

#include "partita/base/grid.hpp"

#include <string>

namespace partita::cli {

/// Returns the bytes of a size such as "4GiB", "500MB" or "123456". Throws Error, with the name of the option, if the
/// text is not a size, or if the size is less than 1 byte or is 2^62 bytes or more.
Index parse_size(const char* option, const std::string& text);

}  // namespace partita::cli
