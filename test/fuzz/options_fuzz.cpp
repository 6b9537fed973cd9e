// Any words are either read as a command line or refused with an Error. A run of `train` that is accepted can be
// written as an options file, which reads back as the same run.
#include "partita/base/error.hpp"
#include "src/cli/program/verb_options.hpp"
#include "src/cli/support/command_line.hpp"
#include "src/cli/support/options.hpp"
#include "src/cli/support/options_file.hpp"
#include "src/cli/verbs/scale/scale_options.hpp"

#include <cstdint>
#include <cstdlib>

using namespace partita;

namespace {

using Words = std::vector<std::string>;

/// Calls `parse` with the words as main() gets them.
template <class Parse>
auto with_words(Words words, Parse&& parse) {
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return parse(static_cast<int>(words.size()), pointers.data());
}

std::optional<cli::Options> parse(const Words& words) {
  std::string answer;
  return with_words(words, [&](int argc, char** argv) { return cli::parse_options(argc, argv, {}, answer); });
}

/// Returns the words of a run of train that a text describes.
Words words_of(const std::string& text) {
  Words words{"partita", "train", "--write-options", "fuzzed.toml"};
  const auto read = cli::parse_options_file(text, "fuzzed.toml", {cli::describe_options("train", "partita", true)}, {});
  for (const auto& option : read.given)
    if (!option.off)
      for (auto& word : cli::option_words(option.name, option.values)) words.push_back(std::move(word));
  return words;
}

void check_file_of(const Words& words) {
  std::optional<cli::Options> options;
  try {
    options = parse(words);
  } catch (const Error&) {
    return;
  }
  if (!options || options->options_text.empty()) return;
  try {
    if (parse(words_of(options->options_text))->options_text != options->options_text) std::abort();
  } catch (const Error&) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  // As a command line: one word a line.
  Words words{"partita"};
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  for (auto& word : words) word.erase(std::find(word.begin(), word.end(), '\0'), word.end());
  check_file_of(words);
  if (words.size() > 1 && words[1] == "scale") {
    try {
      std::string answer;
      static_cast<void>(
          with_words(words, [&](int argc, char** argv) { return cli::parse_scale_options(argc, argv, {}, answer); }));
    } catch (const Error&) {
    }
  }
  return 0;
}
