// A text is either read as an options file of each verb or refused with an Error. If it describes a run of train, the
// run is written as a file that reads back the same.
#include "partita/base/error.hpp"
#include "src/cli/program/verb_options.hpp"
#include "src/cli/support/command_line.hpp"
#include "src/cli/support/options.hpp"
#include "src/cli/support/options_file.hpp"

#include <cstdint>
#include <cstdlib>

using namespace partita;

namespace {

using Words = std::vector<std::string>;

const std::vector<cli::VerbOptions>& verbs() {
  static const auto all = cli::verb_options("partita", true);
  return all;
}

/// Returns the words of a command line with the options that a text gives.
Words words_of(std::string_view text, const cli::VerbOptions& verb) {
  Words words{"partita", verb.name};
  if (verb.name == "train") words.insert(words.end(), {"--write-options", "fuzzed.toml"});
  for (const auto& option : cli::parse_options_file(text, "fuzzed.toml", verb.options, {"elsewhere"}).given)
    if (!option.off)
      for (auto& word : cli::option_words(option.name, option.values)) words.push_back(std::move(word));
  return words;
}

/// Returns the options file of a run; "" if its options are refused.
std::string file_of(Words words) {
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  try {
    std::string answer;
    const auto options = cli::parse_options(static_cast<int>(words.size()), pointers.data(), {}, answer);
    return options ? options->options_text : "";
  } catch (const Error&) {
    return "";
  }
}

/// A file that was written is read and written again.
void check_again(const std::string& file, const cli::VerbOptions& verb) {
  Words words;
  try {
    words = words_of(file, verb);
  } catch (const Error&) {
    std::abort();
  }
  if (file_of(words) != file) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& verb : verbs()) {
    try {
      const Words words = words_of(text, verb);
      if (verb.name == "schedule" || verb.name == "report" || verb.name == "info" || verb.name == "scale") continue;
      const std::string file = file_of(words);
      if (verb.name != "train" || file.empty()) continue;
      check_again(file, verb);
    } catch (const Error&) {
    }
  }
  return 0;
}
