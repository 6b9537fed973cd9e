#include "strategies/machine/read_constant.hpp"

#include "partita/base/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace partita {

namespace {

/// The value given for a quantity, and its unit.
struct Entry {
  const Unit* unit = nullptr;
  const toml::node* node = nullptr;
};

Entry find_entry(const Reader& reader, const toml::table& table, const std::string& what, const Quantity& quantity) {
  Entry entry;
  for (const auto& [key, node] : table) {
    const Unit* unit = units::find(quantity, key.str());
    if (unit == nullptr) continue;
    if (entry.unit != nullptr)
      fail("{}: {} is given in {} and in {}; keep one", reader.place(key.source()), what, entry.unit->name, unit->name);
    entry = {unit, &node};
  }
  if (entry.unit == nullptr) reader.refuse(table, "{} needs a number in {}", what, units::list(quantity));
  return entry;
}

/// Converts a number of a unit to a value. Refuses absurd values.
double read_number(const Reader& reader, const toml::node& node, const Unit& unit, const Field& field) {
  const auto number = node.is_number() ? node.value<double>() : std::nullopt;
  if (!number) reader.refuse(node, "{} must be a number of {}", field.key, unit.name);
  const double value = *number * unit.times / unit.per;
  if (!(value >= field.least && value <= field.most))  // also refuses NaN
    reader.refuse(node, "{} of {}{}{}; it must be {} to {}", field.key, *number, field.quantity.counted ? "" : " ",
                  field.quantity.counted ? "" : unit.name, units::text(field.quantity, field.least),
                  units::text(field.quantity, field.most));
  if (field.whole && value != std::floor(value))
    reader.refuse(node, "{} of {}; it must be a whole number", field.key, *number);
  return value;
}

/// e.g. KiB = [1, 64]
std::vector<double> read_column(const Reader& reader, const toml::table& table, const std::string& what,
                                const Field& field) {
  const auto [unit, node] = find_entry(reader, table, what, field.quantity);
  const auto* array = node->as_array();
  if (array == nullptr || array->empty())
    reader.refuse(*node, "{} of {} must be a list of numbers, {} = [...]", field.key, what, units::key(unit->name));
  std::vector<double> values;
  for (const auto& element : *array) values.push_back(read_number(reader, element, *unit, field));
  return values;
}

}  // namespace

std::string example(const Field& field) {
  const Unit& unit = units::shortest(field.quantity, std::span(&field.example, 1));
  return fmt::format("{} = {{ {} = {}, from = \"...\" }}", field.key, units::key(unit.name),
                     units::number(field.example, unit));
}

void check_units(const Reader& reader, const toml::table& table, const std::string& what,
                 const std::vector<const Quantity*>& quantities, std::vector<std::string> known) {
  std::string right;
  for (const auto* quantity : quantities) {
    right += (right.empty() ? "" : ", and in ") + units::list(*quantity);
    for (const auto& name : units::names(*quantity)) known.push_back(name);
  }
  for (const auto& [key, node] : table) {
    if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
    for (const auto* other : units::all)
      if (units::find(*other, key.str()) != nullptr)
        fail("{}: {} must be in {}, not {}", reader.place(key.source()), what, right, key.str());
  }
  reader.check_keys(table, known, what);
}

std::string read_source(const Reader& reader, const toml::table& table, const std::string& what) {
  const auto text = reader.text(table, "from");
  if (!text || text->empty())
    reader.refuse(text ? *table.get("from") : table,
                  "{} lacks its source; add from = \"a document and its year, or measured: ..., or assumed: ...\"",
                  what);
  return *text;
}

std::optional<Constant> read_constant(const Reader& reader, const toml::table& table, const Field& field) {
  const auto* node = table.get(field.key);
  if (node == nullptr) return std::nullopt;
  const auto* entries = node->as_table();
  if (entries == nullptr) reader.refuse(*node, "{} needs its unit and its source; write {}", field.key, example(field));
  const std::string what(field.key);
  check_units(reader, *entries, what, {&field.quantity}, {"from"});
  const auto [unit, number] = find_entry(reader, *entries, what, field.quantity);
  const double value = read_number(reader, *number, *unit, field);
  return Constant{value, read_source(reader, *entries, what)};
}

void check_complete(const Reader& reader, const toml::table& table, const std::string& where,
                    std::initializer_list<const Field*> needed, std::string_view all) {
  std::vector<std::string_view> missing;
  std::vector<std::string> examples;
  for (const Field* field : needed) {
    if (table.contains(field->key)) continue;
    missing.push_back(field->key);
    examples.push_back(example(*field) +
                       (field->quantity.counted ? "" : fmt::format(" (in {})", units::list(field->quantity))));
  }
  if (!missing.empty())
    reader.refuse(table, "{} lacks {}; add {}; {}", where, fmt::join(missing, " and "), fmt::join(examples, " and "),
                  all);
}

Constant need(const Reader& reader, const toml::table& table, const Field& field) {
  return *read_constant(reader, table, field);
}

std::string read_name(const Reader& reader, const toml::table& table, std::string_view where) {
  const auto text = reader.text(table, "name");
  if (!text || text->empty()) reader.refuse(text ? *table.get("name") : table, "{} needs name = \"...\"", where);
  return *text;
}

Curve read_curve(const Reader& reader, const toml::table& table, const std::string& what, const Field& size,
                 const Field& value) {
  const auto sizes = read_column(reader, table, what, size);
  const auto values = read_column(reader, table, what, value);
  if (sizes.size() != values.size())
    reader.refuse(table, "{} has {} points of {} but {} of {}", what, sizes.size(), size.key, values.size(), value.key);
  Curve curve{{}, read_source(reader, table, what)};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (i > 0 && sizes[i] <= sizes[i - 1])
      reader.refuse(*find_entry(reader, table, what, size.quantity).node->as_array()->get(i),
                    "{} of {} must ascend, but {} follows {}", size.key, what, units::text(size.quantity, sizes[i]),
                    units::text(size.quantity, sizes[i - 1]));
    curve.points.emplace_back(sizes[i], values[i]);
  }
  return curve;
}

}  // namespace partita
