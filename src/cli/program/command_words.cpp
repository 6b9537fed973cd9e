#include "src/cli/program/command_words.hpp"

#include "partita/base/error.hpp"
#include "src/base/plain_text.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/cli/options/command_line.hpp"
#include "src/cli/options/options_file.hpp"
#include "src/cli/program/verbs.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace partita::cli {

namespace {

/// The words after the verb, sorted out.
struct Sorted {
  std::vector<std::string> words;  ///< all but --options and its value
  std::set<std::string> given;     ///< long names of the options that the words give
  std::set<std::string> off;       ///< those of switches that they turn off
  std::optional<std::string> file;
};

/// Returns the option of this name, or null.
const boost::program_options::option_description* find_option(const VerbOptions& verb, const std::string& name) {
  for (const auto* option : verb.listed())
    if (option->long_name() == name) return option;
  return nullptr;
}

/// Adds one option that begins with "--" to `sorted`. `value` is what follows "=", if anything does.
void sort_option(const std::string& word, const VerbOptions& verb, Sorted& sorted) {
  const auto equals = word.find('=');
  const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
  const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
  sorted.given.insert(name);
  const auto* option = find_option(verb, name);
  if (option != nullptr && word.ends_with('=') && value.empty() && option->semantic()->min_tokens() == 1)
    sorted.words.insert(sorted.words.end(), {"--" + name, ""});  // Boost refuses "--NAME="
  else if ((value != "true" && value != "false") || option == nullptr || !is_switch(*option))
    sorted.words.push_back(word);
  else if (value == "true")
    sorted.words.push_back("--" + name);
  else
    sorted.off.insert(name);
}

Sorted sort_words(std::span<const std::string> words, const VerbOptions& verb) {
  constexpr std::string_view option = "--options";
  Sorted sorted;
  const auto take_file = [&](const std::string& file) {
    if (file.empty()) fail("--options needs the name of a file, e.g. --options run.toml");
    if (sorted.file) fail("--options is given twice; write all options into one file");
    sorted.file = file;
  };
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {  // no option follows
      sorted.words.insert(sorted.words.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      break;
    }
    if (word == option)
      take_file(++i < words.size() ? words[i] : "");
    else if (word.starts_with("--options="))
      take_file(word.substr(option.size() + 1));
    else if (word.starts_with("--"))
      sort_option(word, verb, sorted);
    else
      sorted.words.push_back(word);
  }
  return sorted;
}

/// The names of the options that only other verbs have.
std::vector<std::string> names_elsewhere(const VerbOptions& verb, const Program& program) {
  std::set<std::string> own, others;
  for (const auto* option : verb.listed()) own.insert(option->long_name());
  for (const VerbEntry* entry : verbs()) {
    const VerbOptions other = options_of(*entry, "", program);
    for (const auto* option : other.listed())
      if (!own.contains(option->long_name())) others.insert(option->long_name());
  }
  return {others.begin(), others.end()};
}

}  // namespace

CommandWords::CommandWords(int argc, char** argv, const Program& program) : words_(argv, argv + argc) {
  if (words_.empty()) words_.emplace_back("partita");
  try {
    expand(program);
  } catch (const Error& error) {
    error_ = error.what();
  }
}

void CommandWords::check() const {
  if (!error_.empty()) throw Error(error_);
}

bool CommandWords::has(std::string_view option) const {
  return std::any_of(words_.begin(), words_.end(), [&](std::string_view word) {
    return word.starts_with(option) && (word.size() == option.size() || word[option.size()] == '=');
  });
}

void CommandWords::expand(const Program& program) {
  const VerbEntry* entry = find_verb(verb());
  if (entry == nullptr) return;
  const VerbOptions verb = options_of(*entry, program_name(words_[0]), program);
  auto [words, given, off, file] = sort_words(std::span(words_).subspan(2), verb);
  if (file && !given.contains("help")) {
    check_readable_by_all({{"--options", *file}});
    auto read =
        parse_options_file(read_text("--options", *file), *file, verb.descriptions(), names_elsewhere(verb, program));
    std::vector<std::string> added;
    for (const auto& [name, values, is_off, place] : read.given) {
      if (given.contains(name)) continue;
      if (is_off) {
        off.insert(name);
        continue;
      }
      for (auto& word : option_words(name, values)) added.push_back(std::move(word));
      places_.push_back({"--" + name, place});
    }
    words.insert(std::find(words.begin(), words.end(), "--"), added.begin(), added.end());
    if (!read.ignored.empty())
      note_ =
          fmt::format("{}: the verb {} does not use these keys: {}", *file, entry->name, fmt::join(read.ignored, ", "));
  }
  off_ = std::move(off);
  words_.resize(2);
  words_.insert(words_.end(), words.begin(), words.end());
}

Failure CommandWords::failure() const {
  Failure failure = present_failure();
  if (failure.status == user_error) failure.message = with_place(failure.message);
  return failure;
}

std::string CommandWords::with_place(std::string_view message) const {
  for (const auto& [option, where] : places_) {
    const auto at = message.find(option);
    if (at == std::string_view::npos) continue;
    const auto end = at + option.size();
    if (end < message.size() && (is_letter(message[end]) || is_digit(message[end]) || message[end] == '-'))
      continue;  // a longer name
    const auto line = message.find('\n');
    return fmt::format("{} ({} is from {}){}", message.substr(0, line), option, where,
                       line == std::string_view::npos ? "" : message.substr(line));
  }
  return std::string(message);
}

}  // namespace partita::cli
