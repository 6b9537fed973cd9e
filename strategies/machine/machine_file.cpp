#include "partita/base/error.hpp"
#include "partita/strategies/machine/machine.hpp"
#include "strategies/declare/toml.hpp"
#include "strategies/machine/units.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace partita {

namespace {

using Quantities = std::vector<const Quantity*>;

/// e.g. latency = { us = 2, from = "..." }
std::string example(const Field& field) {
  const Unit& unit = units::shortest(field.quantity, std::span(&field.example, 1));
  return fmt::format("{} = {{ {} = {}, from = \"...\" }}", field.key, units::key(unit.name),
                     units::number(field.example, unit));
}

/// Refuses keys that are neither in `known` nor a unit of one of the `quantities` that `what` consists of.
void check_units(const Reader& reader, const toml::table& table, const std::string& what, const Quantities& quantities,
                 std::vector<std::string> known) {
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

/// As read_constant(), for a constant that must be there.
Constant need(const Reader& reader, const toml::table& table, const std::string& where, const Field& field) {
  if (auto constant = read_constant(reader, table, field)) return *constant;
  reader.refuse(table, "{} lacks {}; add {}{}", where, field.key, example(field),
                field.quantity.counted ? "" : fmt::format(" (in {})", units::list(field.quantity)));
}

std::string read_name(const Reader& reader, const toml::table& table, std::string_view where) {
  const auto text = reader.text(table, "name");
  if (!text || text->empty()) reader.refuse(text ? *table.get("name") : table, "{} needs name = \"...\"", where);
  return *text;
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

/// Reads a curve from two columns: the sizes in ascending order, and the values.
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

constexpr Precision all_types[] = {Precision::f64, Precision::f32, Precision::tf32, Precision::bf16, Precision::f16};

std::vector<std::string> names_of_types() {
  std::vector<std::string> names;
  for (const Precision type : all_types) names.emplace_back(name(type));
  return names;
}

/// [efficiency.conv] Gflop = [1, 16] share = [0.6, 0.9] from = "..." width = { ... }, and [efficiency.conv.bf16]
Efficiency read_efficiency(const Reader& reader, const toml::table& table, const std::string& what) {
  auto known = names_of_types();
  known.insert(known.end(), {"width", "from"});
  check_units(reader, table, what, {&units::operations, &units::share}, known);
  Efficiency efficiency;
  efficiency.curve = read_curve(reader, table, what, fields::operations, fields::efficiency);
  efficiency.width = read_constant(reader, table, fields::width).value_or(Constant{});
  for (const Precision type : all_types) {
    const auto* own = table.get(name(type));
    if (own == nullptr) continue;
    const auto inner = fmt::format("{}.{}]", what.substr(0, what.size() - 1), name(type));
    if (!own->is_table()) reader.refuse(*own, "the efficiency of a type must be written as {}", inner);
    check_units(reader, *own->as_table(), inner, {&units::operations, &units::share}, {"from"});
    efficiency.of_type[type] = read_curve(reader, *own->as_table(), inner, fields::operations, fields::efficiency);
  }
  return efficiency;
}

std::map<KernelKind, Efficiency> read_efficiencies(const Reader& reader, const toml::table& root) {
  static constexpr KernelKind all[] = {KernelKind::conv, KernelKind::product, KernelKind::others};
  std::vector<std::string> kinds;
  for (const KernelKind kind : all) kinds.emplace_back(name(kind));
  const auto* node = root.get("efficiency");
  const auto* tables = node == nullptr ? nullptr : node->as_table();
  if (tables == nullptr || !tables->contains("others"))
    reader.refuse(node == nullptr ? root : *node,
                  "the machine lacks [efficiency.others]; add Gflop = [1], share = [0.5] and from = \"...\"");
  reader.check_keys(*tables, kinds, "[efficiency]");
  std::map<KernelKind, Efficiency> efficiency;
  for (const KernelKind kind : all) {
    const auto* entry = tables->get(name(kind));
    if (entry == nullptr) continue;
    const auto what = fmt::format("[efficiency.{}]", name(kind));
    if (!entry->is_table()) reader.refuse(*entry, "the efficiency must be written as {}", what);
    efficiency[kind] = read_efficiency(reader, *entry->as_table(), what);
  }
  return efficiency;
}

/// True if [arithmetic] has a peak for each type, and not one for all.
bool has_types(const toml::table& root) {
  const auto* table = root.get_as<toml::table>("arithmetic");
  if (table == nullptr) return false;
  if (table->contains("f32-uses")) return true;
  return std::any_of(std::begin(all_types), std::end(all_types),
                     [&](Precision type) { return table->contains(name(type)); });
}

/// [arithmetic] f32 = { "Tflop/s" = 67, from = "..." } tf32 = { ... } f32-uses = "tf32"
void read_peaks(const Reader& reader, const toml::table& table, Machine& machine) {
  auto known = names_of_types();
  known.emplace_back("f32-uses");
  reader.check_keys(table, known, "[arithmetic]");
  for (const Precision type : all_types) {
    Field field = fields::arithmetic;
    field.key = name(type);
    if (const auto peak = read_constant(reader, table, field)) machine.peaks[type] = *peak;
  }
  const auto uses = reader.text(table, "f32-uses");
  if (!uses) return;
  if (*uses != "f32" && *uses != "tf32")
    reader.refuse(*table.get("f32-uses"), "f32-uses must be \"f32\" or \"tf32\", not {}", quoted(*uses));
  machine.f32_uses = *uses == "tf32" ? Precision::tf32 : Precision::f32;
  if (!machine.peaks.contains(machine.f32_uses))
    reader.refuse(*table.get("f32-uses"), "f32-uses names {}, of which [arithmetic] does not give the peak", *uses);
}

/// collectives = { ways = ["all-links"], from = "..." }
CollectiveWays read_ways(const Reader& reader, const toml::table& root) {
  static constexpr LevelUse all[] = {LevelUse::one_shot, LevelUse::all_links, LevelUse::by_levels,
                                     LevelUse::in_network};
  CollectiveWays collectives;
  const auto* node = root.get("collectives");
  if (node == nullptr) return collectives;
  std::vector<std::string> names;
  for (const LevelUse way : all) names.emplace_back(name(way));
  const auto* table = node->as_table();
  const auto* list = table == nullptr ? nullptr : table->get_as<toml::array>("ways");
  if (list == nullptr)
    reader.refuse(*node, "collectives must be written as {{ ways = [...], from = \"...\" }} with some of {}",
                  quoted_list(names));
  reader.check_keys(*table, {"ways", "from"}, "collectives");
  collectives.ways.clear();
  for (const auto& element : *list) {
    const auto text = element.value<std::string>();
    const auto found = std::find(names.begin(), names.end(), text.value_or(""));
    if (found == names.end())
      reader.refuse(element, "there is no way '{}' to run collectives{}; there are {}", text.value_or("?"),
                    did_you_mean(text.value_or(""), names), quoted_list(names));
    collectives.ways.push_back(all[found - names.begin()]);
  }
  collectives.source = read_source(reader, *table, "collectives");
  return collectives;
}

Verb read_verb(const Reader& reader, const toml::table& table) {
  static constexpr Verb all[] = {Verb::exchange,       Verb::all_reduce, Verb::all_gather,
                                 Verb::reduce_scatter, Verb::broadcast,  Verb::all_to_all};
  std::vector<std::string> names;
  for (const Verb verb : all) names.emplace_back(name(verb));
  const auto text = reader.text(table, "verb");
  if (!text) reader.refuse(table, "[[level.verb]] needs verb = \"...\": {}", quoted_list(names));
  for (const Verb verb : all)
    if (name(verb) == *text) return verb;
  reader.refuse(*table.get("verb"), "there is no verb '{}'{}; there are {}", *text, did_you_mean(*text, names),
                quoted_list(names));
}

/// Reads a whole number of ranks, from `least` to `most`.
int read_ranks_of_verb(const Reader& reader, const toml::table& table, std::string_view key, int least, double most) {
  const auto* node = table.get(key);
  const auto ranks = node == nullptr ? std::nullopt : node->value_exact<std::int64_t>();
  if (!ranks || *ranks < least || static_cast<double>(*ranks) > most)
    reader.refuse(node == nullptr ? table : *node, "[[level.verb]] needs {} = a whole number, {} to {}", key, least,
                  most);
  return static_cast<int>(*ranks);
}

/// [[level.verb]] verb = "all_reduce" ranks = 8 inside = 4 KiB = [1, 64] us = [2, 9] from = "..."
void read_times(const Reader& reader, const toml::table& table, Level& level, const Level* inside) {
  MeasuredVerb of{read_verb(reader, table)};
  of.ranks =
      read_ranks_of_verb(reader, table, "ranks", 2, level.ranks.value > 0 ? level.ranks.value : fields::most_ranks);
  if (table.contains("inside"))
    of.inside = read_ranks_of_verb(reader, table, "inside", 1,
                                   inside == nullptr ? 1 : std::min<double>(of.ranks, inside->ranks.value));
  const auto what = fmt::format("'{}' of {} ranks", name(of.verb), of.ranks);
  check_units(reader, table, what, {&units::bytes, &units::time}, {"verb", "ranks", "inside", "from"});
  if (!level.verbs.emplace(of, read_curve(reader, table, what, fields::bytes, fields::seconds)).second)
    reader.refuse(table, "{} appears twice in the level '{}'", what, level.name);
}

/// Reads the ranks of a level, which must be a multiple of the ranks of the level inside it.
Constant read_ranks(const Reader& reader, const toml::table& table, const Level& level, const Level* inside,
                    bool last) {
  const auto where = fmt::format("the level '{}'", level.name);
  const auto given = read_constant(reader, table, fields::ranks);
  if (!given && last) return {};
  const Constant ranks = given ? *given : need(reader, table, where, fields::ranks);
  if (inside == nullptr) return ranks;
  if (ranks.value < inside->ranks.value)
    reader.refuse(*table.get("ranks"), "{} has {} ranks, fewer than the {} of '{}' inside it", where, ranks.value,
                  inside->ranks.value, inside->name);
  if (std::fmod(ranks.value, inside->ranks.value) != 0)
    reader.refuse(*table.get("ranks"), "{} has {} ranks, which is not a multiple of the {} of '{}' inside it", where,
                  ranks.value, inside->ranks.value, inside->name);
  return ranks;
}

/// Reads [[level]]. The last of `inner` is the level inside it.
Level read_level(const Reader& reader, const toml::table& table, const std::vector<Level>& inner, bool last) {
  static const std::vector<std::string> keys{"name",    "ranks",   "latency",   "bandwidth", "links",
                                             "fan-out", "overlap", "reduction", "verb"};
  reader.check_keys(table, keys, "[[level]]");
  Level level;
  level.name = read_name(reader, table, "[[level]]");
  for (const auto& other : inner)
    if (other.name == level.name) reader.refuse(*table.get("name"), "there are two levels '{}'", level.name);
  const auto where = fmt::format("the level '{}'", level.name);
  const Level* inside = inner.empty() ? nullptr : &inner.back();
  level.ranks = read_ranks(reader, table, level, inside, last);
  level.latency = need(reader, table, where, fields::latency);
  level.bandwidth = need(reader, table, where, fields::bandwidth);
  level.links = read_constant(reader, table, fields::links)
                    .value_or(Constant{inside == nullptr ? 1 : inside->ranks.value, "assumed: one link per rank"});
  level.fan_out =
      read_constant(reader, table, fields::fan_out).value_or(Constant{1, "assumed: all links can be busy at once"});
  level.overlap = need(reader, table, where, fields::overlap);
  level.reduction = read_constant(reader, table, fields::reduction).value_or(Constant{});
  for (const auto* times : reader.tables(table, "verb")) read_times(reader, *times, level, inside);
  return level;
}

}  // namespace

Machine Machine::parse(std::string_view text, const std::string& file) {
  const Reader reader(file);
  const toml::table root = reader.parse(text);
  static const std::vector<std::string> keys{"name",   "memory",     "memory-bandwidth", "arithmetic",
                                             "kernel", "efficiency", "collectives",      "level"};
  reader.check_keys(root, keys, "a machine");
  const std::string where = "the machine";
  Machine machine;
  machine.name = read_name(reader, root, "a machine");
  machine.memory = need(reader, root, where, fields::memory);
  machine.memory_bandwidth = need(reader, root, where, fields::memory_bandwidth);
  if (has_types(root))
    read_peaks(reader, *root.get_as<toml::table>("arithmetic"), machine);
  else
    machine.arithmetic = need(reader, root, where, fields::arithmetic);
  machine.kernel = need(reader, root, where, fields::kernel);
  machine.collectives = read_ways(reader, root);
  machine.efficiency = read_efficiencies(reader, root);
  const auto tables = reader.tables(root, "level");
  if (tables.empty())
    reader.refuse(root, "the machine lacks [[level]]; add one for each level of its network, from the inside out");
  for (const auto* table : tables)
    machine.levels.push_back(read_level(reader, *table, machine.levels, table == tables.back()));
  return machine;
}

}  // namespace partita
