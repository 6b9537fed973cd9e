#pragma once

#include "partita/base/grid.hpp"

#include <string>

namespace partita::cli {

/// "4GiB", "500MB", "123456" in bytes. Throws Error, with the option's name, for what is no size and for less than a byte or more than
/// 2^62.
Index parse_size(const char* option, const std::string& text);

}  // namespace partita::cli
