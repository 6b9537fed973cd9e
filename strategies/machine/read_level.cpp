#include "strategies/machine/read_level.hpp"

#include "partita/base/error.hpp"
#include "strategies/machine/read_constant.hpp"

#include <algorithm>
#include <cmath>

namespace partita {

namespace {

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
  if (last && !table.contains(fields::ranks.key)) return {};
  const Constant ranks = need(reader, table, fields::ranks);
  if (inside == nullptr) return ranks;
  if (ranks.value < inside->ranks.value)
    reader.refuse(*table.get("ranks"), "{} has {} ranks, fewer than the {} of '{}' inside it", where, ranks.value,
                  inside->ranks.value, inside->name);
  if (std::fmod(ranks.value, inside->ranks.value) != 0)
    reader.refuse(*table.get("ranks"), "{} has {} ranks, which is not a multiple of the {} of '{}' inside it", where,
                  ranks.value, inside->ranks.value, inside->name);
  return ranks;
}

/// pairs = { links = [[0, 4, 1], [4, 0, 2], [1, 2, 0]], from = "..." }
PairLinks read_pairs(const Reader& reader, const toml::table& table, const Level& level, const Level* inside) {
  const auto* node = table.get("pairs");
  if (node == nullptr) return {};
  const auto where = fmt::format("pairs of the level '{}'", level.name);
  if (inside != nullptr) reader.refuse(*node, "{}: only the innermost level can have them", where);
  const auto* entries = node->as_table();
  const auto* rows = entries == nullptr ? nullptr : entries->get_as<toml::array>("links");
  if (rows == nullptr)
    reader.refuse(*node,
                  "{} must be written as {{ links = [[0, 4, ...], ...], from = \"...\" }}, with a row of numbers "
                  "of links for each rank",
                  where);
  reader.check_keys(*entries, {"links", "from"}, where);
  std::vector<std::vector<int>> links;
  for (const auto& row : *rows) {
    links.emplace_back();
    const auto* numbers = row.as_array();
    if (numbers == nullptr) reader.refuse(row, "{}: a row must be a list of numbers of links", where);
    for (const auto& number : *numbers) {
      const auto value = number.value_exact<std::int64_t>();
      if (!value || *value < 0 || static_cast<double>(*value) > fields::most_ranks)
        reader.refuse(number, "{}: a number of links must be a whole number, 0 to {}", where, fields::most_ranks);
      links.back().push_back(static_cast<int>(*value));
    }
  }
  if (level.ranks.value > 0 && static_cast<double>(links.size()) != level.ranks.value)
    reader.refuse(*rows, "{} have {} rows, but the level has {} ranks", where, links.size(), level.ranks.value);
  if (level.ranks.value == 0)
    reader.refuse(*node, "{}: the level must say how many ranks a unit holds; add {}", where, example(fields::ranks));
  const std::string source = read_source(reader, *entries, where);
  try {
    return {std::move(links), source};
  } catch (const Error& error) {
    reader.refuse(*rows, "{}: {}", where, error.what());
  }
}

}  // namespace

Level read_level(const Reader& reader, const toml::table& table, const std::vector<Level>& inner, bool last) {
  static const std::vector<std::string> keys{"name",    "ranks",   "latency",   "bandwidth", "links",
                                             "fan-out", "overlap", "reduction", "pairs",     "verb"};
  reader.check_keys(table, keys, "[[level]]");
  Level level;
  level.name = read_name(reader, table, "[[level]]");
  for (const auto& other : inner)
    if (other.name == level.name) reader.refuse(*table.get("name"), "there are two levels '{}'", level.name);
  const auto where = fmt::format("the level '{}'", level.name);
  constexpr std::string_view all = "a level needs name, latency, bandwidth, overlap and, but for the last one, ranks";
  if (last)
    check_complete(reader, table, where, {&fields::latency, &fields::bandwidth, &fields::overlap}, all);
  else
    check_complete(reader, table, where, {&fields::ranks, &fields::latency, &fields::bandwidth, &fields::overlap}, all);
  const Level* inside = inner.empty() ? nullptr : &inner.back();
  level.ranks = read_ranks(reader, table, level, inside, last);
  level.latency = need(reader, table, fields::latency);
  level.bandwidth = need(reader, table, fields::bandwidth);
  level.links = read_constant(reader, table, fields::links)
                    .value_or(Constant{inside == nullptr ? 1 : inside->ranks.value, "assumed: one link per rank"});
  level.fan_out =
      read_constant(reader, table, fields::fan_out).value_or(Constant{1, "assumed: all links can be busy at once"});
  level.overlap = need(reader, table, fields::overlap);
  level.reduction = read_constant(reader, table, fields::reduction).value_or(Constant{});
  level.pairs = read_pairs(reader, table, level, inside);
  for (const auto* times : reader.tables(table, "verb")) read_times(reader, *times, level, inside);
  return level;
}

}  // namespace partita
