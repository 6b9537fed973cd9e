#include "strategies/machine/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace partita::units {

std::string list(const Quantity& quantity) {
  std::string text;
  for (std::size_t i = 0; i < quantity.units.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == quantity.units.size() ? " or " : ", ", quantity.units[i].name);
  return text;
}

std::vector<std::string> names(const Quantity& quantity) {
  std::vector<std::string> names;
  for (const auto& unit : quantity.units) names.emplace_back(unit.name);
  return names;
}

const Unit* find(const Quantity& quantity, std::string_view name) {
  const auto found =
      std::find_if(quantity.units.begin(), quantity.units.end(), [&](const Unit& unit) { return unit.name == name; });
  return found == quantity.units.end() ? nullptr : &*found;
}

const Unit& shortest(const Quantity& quantity, std::span<const double> values) {
  constexpr std::size_t exponent = 16;  // an exponent counts as this many characters, since it is hard to read
  const Unit* best = &quantity.units[0];
  auto least = std::numeric_limits<std::size_t>::max();
  for (const auto& unit : quantity.units) {
    const auto exact = [&](double value) { return value * unit.per / unit.times * unit.times / unit.per == value; };
    if (!std::all_of(values.begin(), values.end(), exact)) continue;
    std::size_t length = 0;
    for (const double value : values) {
      const auto text = number(value, unit);
      length += text.size() + (text.find('e') == std::string::npos ? 0 : exponent);
    }
    if (length < least) best = &unit, least = length;
  }
  return *best;
}

std::string number(double value, const Unit& unit) { return fmt::format("{}", value * unit.per / unit.times); }

std::string text(const Quantity& quantity, double value) {
  const Unit& unit = shortest(quantity, std::span(&value, 1));
  return quantity.counted ? number(value, unit) : fmt::format("{} {}", number(value, unit), unit.name);
}

std::string key(std::string_view name) {
  const bool word = name.find('/') == std::string_view::npos;
  return word ? std::string(name) : fmt::format("\"{}\"", name);
}

}  // namespace partita::units
