#pragma once

#include "partita/strategies/machine/machine.hpp"
#include "strategies/declare/toml.hpp"
#include "strategies/machine/units.hpp"

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Reads the constants and curves of a machine file. Every message begins with file, line and column, and says what
// would be right.

namespace partita {

/// Returns how to write a constant, e.g. "latency = { us = 2, from = "..." }".
std::string example(const Field& field);
/// Refuses keys that are neither in `known` nor a unit of one of the `quantities` that `what` consists of.
void check_units(const Reader& reader, const toml::table& table, const std::string& what,
                 const std::vector<const Quantity*>& quantities, std::vector<std::string> known);
/// Refuses a table that lacks some of the constants that it must have. Names them all, and `all` that it needs.
void check_complete(const Reader& reader, const toml::table& table, const std::string& where,
                    std::initializer_list<const Field*> needed, std::string_view all);
/// Returns a constant, or nothing if the table lacks it.
std::optional<Constant> read_constant(const Reader& reader, const toml::table& table, const Field& field);
/// As read_constant(), for a constant that is there.
Constant need(const Reader& reader, const toml::table& table, const Field& field);
/// Returns the key `from` of what a message calls `what`.
std::string read_source(const Reader& reader, const toml::table& table, const std::string& what);
/// Returns the key `name`.
std::string read_name(const Reader& reader, const toml::table& table, std::string_view where);
/// Reads a curve from two columns: the sizes in ascending order, and the values.
Curve read_curve(const Reader& reader, const toml::table& table, const std::string& what, const Field& size,
                 const Field& value);

}  // namespace partita
