#pragma once

#include "src/cli/options/options_file.hpp"
#include "src/cli/options/train_options.hpp"
#include "src/cli/program/verbs.hpp"

#include <string>
#include <vector>

namespace partita::fuzz {

using Words = std::vector<std::string>;

/// Returns the words of a command line with the options that the text of an options file gives.
inline Words words_of(const std::string& text, const std::string& verb) {
  Words words{"partita", verb};
  if (verb == "train") words.insert(words.end(), {"--write-options", "fuzzed.toml"});
  static const cli::Program program;
  const cli::VerbOptions options = cli::options_of(*cli::find_verb(verb), "partita", program);
  for (const auto& option : cli::parse_options_file(text, "fuzzed.toml", options.descriptions(), {"elsewhere"}).given)
    if (!option.off)
      for (auto& word : cli::option_words(option.name, option.values)) words.push_back(std::move(word));
  return words;
}

/// Returns the options file of a run of train; "" if the words do not ask for one. Throws Error for words that train
/// refuses.
inline std::string file_of_run(const Words& words) {
  cli::TrainOptions options;
  boost::program_options::options_description all;
  cli::add_common_options(all);
  options.add_to(all, {});
  const cli::CommandLine line = cli::read_command_line(words, all);
  if (line.asks_for_help()) return "";
  options.check({}, line);
  return options.options_text;
}

}  // namespace partita::fuzz
