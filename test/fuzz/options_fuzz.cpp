// Any words are either read as a command line or refused with an Error. A run of `train` that is accepted can be
// written as an options file, which reads back as the same run.
#include "partita/base/error.hpp"
#include "src/cli/program/verbs.hpp"
#include "test/fuzz/train_options.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

using namespace partita;

namespace {

void check_file_of(const fuzz::Words& words) {
  std::string text;
  try {
    text = fuzz::file_of_run(words);
  } catch (const Error&) {
    return;
  }
  if (text.empty()) return;
  try {
    if (fuzz::file_of_run(fuzz::words_of(text, "train")) != text) std::abort();
  } catch (const Error&) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  // As a command line: one word a line.
  fuzz::Words words{"partita"};
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  for (auto& word : words) word.erase(std::find(word.begin(), word.end(), '\0'), word.end());
  try {
    std::string answer;
    static const cli::Program program;
    static_cast<void>(cli::read_verb(words, {}, program, answer));
  } catch (const Error&) {
  }
  if (words.size() > 1 && words[1] == "train") check_file_of(words);
  return 0;
}
