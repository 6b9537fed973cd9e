#include "src/cli/options/options_file.hpp"

#include "partita/base/error.hpp"
#include "partita/base/types.hpp"
#include "src/cli/files/json.hpp"
#include "src/cli/options/command_line.hpp"
#include "strategies/declare/toml.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <sstream>

namespace partita::cli {

namespace {

namespace po = boost::program_options;

using Descriptions = std::vector<const po::options_description*>;

/// Options that tell what to do with options: they make no sense in a file.
bool stays_outside(std::string_view name) { return name == "help" || name == "options" || name == "write-options"; }

/// Returns the description that has the option, or null.
const po::options_description* description_with(const std::string& name, const Descriptions& own) {
  for (const auto* all : own)
    if (all->find_nothrow(name, false) != nullptr) return all;
  return nullptr;
}

/// Returns one value as a word of the command line.
std::string word_of(const Reader& source, const toml::node& node, const std::string& name) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  source.refuse(node, "'{}' must be a number or a text in quotes{}", name,
                node.is_boolean() ? ", not true or false" : "");
}

/// Returns the values that a node gives to an option; for a switch, none. `on` becomes false for a switch that is off,
/// and if the node gives nothing.
std::vector<std::string> values_of(const Reader& source, const toml::node& node, const po::option_description& option,
                                   bool& on) {
  const std::string& name = option.long_name();
  if (option.semantic()->min_tokens() == 0) {
    if (const auto* state = node.as_boolean()) {
      on = state->get();
      return {};
    }
    if (is_switch(option)) source.refuse(node, "'{}' must be true or false", name);
  }
  const auto* array = node.as_array();
  if (array == nullptr) return {word_of(source, node, name)};
  if (!takes_several(option)) source.refuse(node, "'{}' takes one value, not an array", name);
  std::vector<std::string> words;
  for (const auto& element : *array) words.push_back(word_of(source, element, name));
  on = !words.empty();
  return words;
}

/// Returns the values of a key as an option, or nothing if the node gives none, e.g. an empty array.
std::optional<FileOption> read_option(const Reader& source, const toml::key& key, const toml::node& node,
                                      const po::options_description& all) {
  const std::string name(key.str());
  const po::option_description& described = *all.find_nothrow(name, false);
  FileOption option{name, {}, false, source.place(key.source())};
  bool on = true;
  option.values = values_of(source, node, described, on);
  option.off = !on && is_switch(described);
  if (option.off) return option;
  if (!on) return std::nullopt;
  try {
    check_option(name, option.values, all);
  } catch (const Error& error) {
    source.refuse(node, "{}", error.what());
  }
  return option;
}

}  // namespace

FileOptions parse_options_file(std::string_view text, const std::string& file, const Descriptions& own,
                               const std::vector<std::string>& others) {
  const Reader source(file);
  const toml::table table = source.parse(text);
  std::vector<std::string> names;
  for (const auto* all : own)
    for (auto& name : long_names(*all))
      if (!stays_outside(name)) names.push_back(std::move(name));
  std::vector<std::pair<const toml::key*, const toml::node*>> lines;
  for (const auto& [key, node] : table) lines.emplace_back(&key, &node);
  std::sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) {
    const auto &left = a.first->source().begin, &right = b.first->source().begin;
    return std::pair(left.line, left.column) < std::pair(right.line, right.column);
  });
  FileOptions read;
  for (const auto& [key, node] : lines) {
    const std::string name(key->str());
    if (stays_outside(name))
      fail("{}: '{}' belongs on the command line, not into a file of options", source.place(key->source()), name);
    if (const auto* all = description_with(name, own); all != nullptr) {
      if (auto option = read_option(source, *key, *node, *all)) read.given.push_back(std::move(*option));
    } else if (std::find(others.begin(), others.end(), name) != others.end()) {
      read.ignored.push_back(name);
    } else {
      fail("{}: there is no option '{}'{}; the keys are the long names of options, which --help lists",
           source.place(key->source()), name, did_you_mean(name, names));
    }
  }
  return read;
}

namespace {

std::string printed(std::uint64_t value) {
  // TOML's numbers are signed.
  return value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ? fmt::format("{}", value)
                                                                                       : fmt::format("\"{}\"", value);
}
std::string printed(const std::string& value) {
  // toml++ would write bytes that are no UTF-8 as other characters.
  if (in_json(value) != value) fail("the options cannot be written as TOML; the values must be valid UTF-8");
  std::ostringstream out;
  out << toml::toml_formatter{toml::value(value), toml::format_flags::none};
  return out.str();
}
template <class Number>
std::string printed(Number value) {
  return fmt::format("{}", value);
}
template <class T>
std::string printed(const std::vector<T>& values) {
  std::string text;
  for (const auto& value : values) text += (text.empty() ? "" : ", ") + printed(value);
  return "[" + text + "]";
}

/// Appends the value to `text` if it is of one of the types.
template <class... Types>
std::string print_any(const boost::any& value) {
  std::string text;
  const auto add = [&](const auto* held) {
    if (held != nullptr) text = printed(*held);
  };
  (add(boost::any_cast<Types>(&value)), ...);
  require(!text.empty(), "the options file knows the types of all options");
  return text;
}

std::string print_value(const boost::any& value) {
  return print_any<std::string, bool, int, Index, std::uint64_t, double, std::vector<std::string>, std::vector<int>,
                   std::vector<Index>, std::vector<double>>(value);
}

/// Appends the text as comment lines of at most 100 columns.
void add_comment(std::string& out, std::string_view text) {
  constexpr std::size_t width = 98;
  while (!text.empty()) {
    auto end = text.size() <= width ? text.size() : text.rfind(' ', width);
    if (end == std::string_view::npos || end == 0) end = text.size();
    out += fmt::format("# {}\n", text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

std::string print_options_file(const std::string& title, const po::options_description& all,
                               const po::variables_map& values, const std::vector<std::string>& unused) {
  std::string text;
  add_comment(text, title);
  for (const auto& option : all.options()) {
    const std::string& name = option->long_name();
    if (stays_outside(name)) continue;
    text += '\n';
    add_comment(text, option->description());
    const bool is_unused = std::find(unused.begin(), unused.end(), name) != unused.end();
    if (values.count(name) == 0)
      text += fmt::format("# {} = {}\n", name, is_switch(*option) ? "true" : option->semantic()->name());
    else
      text += fmt::format("{}{} = {}\n", is_unused ? "# " : "", name, print_value(values[name].value()));
  }
  try {
    static_cast<void>(toml::parse(text));
  } catch (const toml::parse_error& error) {
    fail("the options cannot be written as TOML: {}; the values must be valid UTF-8", error.description());
  }
  return text;
}

}  // namespace partita::cli
