#pragma once

#include "partita/strategies/machine/machine.hpp"
#include "strategies/declare/toml.hpp"

#include <vector>

namespace partita {

/// Reads [[level]]. The last of `inner` is the level inside it; `last` says that no level contains it.
Level read_level(const Reader& reader, const toml::table& table, const std::vector<Level>& inner, bool last);

}  // namespace partita
