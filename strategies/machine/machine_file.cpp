#include "partita/base/error.hpp"
#include "partita/strategies/machine/machine.hpp"
#include "strategies/declare/toml.hpp"
#include "strategies/machine/read_constant.hpp"
#include "strategies/machine/read_level.hpp"

#include <algorithm>
#include <iterator>

namespace partita {

namespace {

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

/// [socket] ranks = { ... } memory-bandwidth = { ... }
Socket read_socket(const Reader& reader, const toml::table& root) {
  const auto* node = root.get("socket");
  if (node == nullptr) return {};
  const auto* table = node->as_table();
  if (table == nullptr) reader.refuse(*node, "the socket must be written as [socket]");
  reader.check_keys(*table, {"ranks", "memory-bandwidth"}, "[socket]");
  check_complete(reader, *table, "[socket]", {&fields::ranks, &fields::memory_bandwidth},
                 "a socket needs both; without [socket], no ranks share their memory");
  return {need(reader, *table, fields::ranks), need(reader, *table, fields::memory_bandwidth)};
}

constexpr std::string_view all_of_machine =
    "a machine needs name, memory, memory-bandwidth, arithmetic, kernel, [efficiency.others], and a [[level]] for each "
    "level of its network";

}  // namespace

Machine Machine::parse(std::string_view text, const std::string& file) {
  const Reader reader(file);
  const toml::table root = reader.parse(text);
  static const std::vector<std::string> keys{"name",       "memory",      "memory-bandwidth", "arithmetic", "kernel",
                                             "efficiency", "collectives", "socket",           "level"};
  reader.check_keys(root, keys, "a machine");
  Machine machine;
  machine.name = read_name(reader, root, "a machine");
  check_complete(reader, root, "the machine",
                 {&fields::memory, &fields::memory_bandwidth, &fields::arithmetic, &fields::kernel}, all_of_machine);
  machine.memory = need(reader, root, fields::memory);
  machine.memory_bandwidth = need(reader, root, fields::memory_bandwidth);
  if (has_types(root))
    read_peaks(reader, *root.get_as<toml::table>("arithmetic"), machine);
  else
    machine.arithmetic = need(reader, root, fields::arithmetic);
  machine.kernel = need(reader, root, fields::kernel);
  machine.socket = read_socket(reader, root);
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
