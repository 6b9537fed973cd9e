#include "src/cli/options/command_line.hpp"

#include "partita/base/error.hpp"
#include "src/cli/options/number_option.hpp"

#include <algorithm>
#include <string_view>

namespace partita::cli {

namespace po = boost::program_options;

namespace {

constexpr int exact = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;

std::vector<std::string> dashed_names(const po::options_description& all) {
  std::vector<std::string> names = long_names(all);
  for (auto& name : names) name.insert(0, "--");
  return names;
}

/// What kind of value the option takes; "" for a text.
std::string_view kind_of(const po::option_description& option) {
  const auto* number = dynamic_cast<const NumberOption*>(option.semantic().get());
  return number != nullptr ? number->kind() : "";
}

/// Gives access to what Boost puts into a message in place of %value% and the like.
struct Substitutions : po::error_with_option_name {
  static constexpr auto member() { return &Substitutions::m_substitutions; }
};

/// Throws Error for a bad value or a wrong use of an option. Says what kind of value the option takes, if that helps.
[[noreturn]] void refuse_value(po::error& error, const po::options_description& all) {
  constexpr std::size_t most = 300;  // a longer value would hide the message
  std::string what = message_of(error);
  if (const auto* named = dynamic_cast<const po::error_with_option_name*>(&error); named != nullptr) {
    const std::string name = named->get_option_name();
    if (what.size() > most) what = fmt::format("the argument for option '{}' is invalid", name);
    const auto* option = name.starts_with("--") ? all.find_nothrow(name.substr(2), false) : nullptr;
    if (option != nullptr && dynamic_cast<const po::validation_error*>(&error) != nullptr && !kind_of(*option).empty())
      fail("{}; write {}", what, kind_of(*option));
  }
  fail("{}; --help lists the options", what);
}

/// For Boost: takes a first word such as "-8" as a value; it would read an option of one letter.
std::vector<po::option> take_number(std::vector<std::string>& words) {
  if (words.empty() || !words.front().starts_with('-') || !parse_number<double>(words.front())) return {};
  po::option number;
  number.position_key = 0;
  number.value = number.original_tokens = {words.front()};
  words.erase(words.begin());
  return {number};
}

/// Throws Error for the first word that belongs to no option. The word may lack its dashes.
void refuse_words(const po::parsed_options& parsed, const po::options_description& all) {
  for (const auto& option : parsed.options)
    if (option.string_key.empty() && !option.value.empty()) {
      const std::string& word = option.value.front();
      const std::string near = word.size() < 4 ? "" : did_you_mean("--" + word, dashed_names(all));
      fail("the word '{}' belongs to no option{}; --help shows how to write the command", word, near);
    }
}

/// Throws Error for a number below zero of an option that has none.
void refuse_below_zero(const po::parsed_options& parsed, const po::options_description& all) {
  for (const auto& option : parsed.options) {
    const auto* known = option.string_key.empty() ? nullptr : all.find_nothrow(option.string_key, false);
    const auto* number = known ? dynamic_cast<const NumberOption*>(known->semantic().get()) : nullptr;
    if (number == nullptr || !number->is_unsigned()) continue;
    if (!option.value.empty() && option.value.front().starts_with('-'))
      fail("--{} {}: it must be 0 or more", option.string_key, option.value.front());
  }
}

/// Throws Error for an option with an empty text. --kernels "" has a meaning, and so has an option that needs no value.
void refuse_empty(const po::variables_map& values, const po::options_description& all) {
  for (const auto& [name, value] : values) {
    const auto* text = boost::any_cast<std::string>(&value.value());
    if (text == nullptr || !text->empty() || value.defaulted() || name == "kernels") continue;
    if (all.find(name, false).semantic()->min_tokens() > 0) fail("--{} is empty; give a value, or leave it out", name);
  }
}

}  // namespace

std::string message_of(po::error& error) {
  constexpr char mark = '\x01';  // stands for a percent sign
  if (auto* named = dynamic_cast<po::error_with_option_name*>(&error); named != nullptr)
    for (auto& [name, text] : named->*Substitutions::member()) std::replace(text.begin(), text.end(), '%', mark);
  std::string what = error.what();
  std::replace(what.begin(), what.end(), mark, '%');
  return what;
}

std::string program_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

void add_common_options(po::options_description& all) {
  all.add_options()("help,h", "this text")(
      "options", po::value<std::string>()->value_name("FILE"),
      "read options from a TOML file with lines such as batch = 64; options of the command line replace those of FILE");
}

std::vector<std::string> long_names(const po::options_description& all) {
  std::vector<std::string> names;
  for (const auto& option : all.options()) names.push_back(option->long_name());
  return names;
}

bool is_switch(const po::option_description& option) { return option.semantic()->max_tokens() == 0; }

bool takes_several(const po::option_description& option) {
  return option.semantic()->max_tokens() > 1 || option.semantic()->is_composing();
}

CommandLine read_command_line(const std::vector<std::string>& words, const po::options_description& all,
                              const OtherWords& others) {
  CommandLine line{all, {}, words, {}, {}};
  po::positional_options_description places;
  if (others.option != nullptr) places.add(others.option, -1);
  try {
    po::command_line_parser parser(std::vector<std::string>(words.begin() + 2, words.end()));
    parser.options(all).style(exact).extra_style_parser(take_number);
    if (others.option != nullptr) parser.positional(places);
    if (others.pass_on) parser.allow_unregistered();
    const po::parsed_options parsed = parser.run();
    if (others.pass_on)
      line.passed_on = po::collect_unrecognized(parsed.options, po::include_positional);
    else if (others.option == nullptr)
      refuse_words(parsed, all);
    refuse_below_zero(parsed, all);
    po::store(parsed, line.values);
    if (!line.asks_for_help()) {
      refuse_empty(line.values, all);
      po::notify(line.values);
    }
  } catch (const po::unknown_option& error) {
    fail("there is no option '{}'{}; --help lists the options", error.get_option_name(),
         did_you_mean(error.get_option_name(), dashed_names(all)));
  } catch (po::error& error) {
    refuse_value(error, all);
  }
  for (const auto& [name, value] : line.values)
    if (!value.defaulted()) line.given.insert(name);
  return line;
}

std::vector<std::string> option_words(const std::string& name, const std::vector<std::string>& values) {
  if (values.empty()) return {"--" + name};
  std::vector<std::string> words;
  for (const auto& value : values) {
    if (value.empty())
      words.insert(words.end(), {"--" + name, value});  // Boost refuses "--NAME="
    else
      words.push_back("--" + name + "=" + value);
  }
  return words;
}

void check_option(const std::string& name, const std::vector<std::string>& values, const po::options_description& all) {
  try {
    po::variables_map unused;
    const po::parsed_options parsed =
        po::command_line_parser(option_words(name, values)).options(all).style(exact).run();
    refuse_below_zero(parsed, all);
    po::store(parsed, unused);
  } catch (po::error& error) {
    refuse_value(error, all);
  }
}

}  // namespace partita::cli
