// A text is either read as an options file of each verb or refused with an Error. If it describes a run of train, the
// run is written as a file that reads back the same.
#include "partita/base/error.hpp"
#include "test/fuzz/train_options.hpp"

#include <cstdint>
#include <cstdlib>

using namespace partita;

namespace {

/// Returns the options file of a run; "" if its options are refused.
std::string file_of(const fuzz::Words& words) {
  try {
    return fuzz::file_of_run(words);
  } catch (const Error&) {
    return "";
  }
}

/// A file that was written is read and written again.
void check_again(const std::string& file) {
  fuzz::Words words;
  try {
    words = fuzz::words_of(file, "train");
  } catch (const Error&) {
    std::abort();
  }
  if (file_of(words) != file) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const cli::VerbEntry* verb : cli::verbs()) {
    try {
      const fuzz::Words words = fuzz::words_of(text, verb->name);
      static const cli::Program program;
      std::string answer;
      if (std::string_view(verb->name) != "scale") static_cast<void>(cli::read_verb(words, {}, program, answer));
      if (std::string_view(verb->name) != "train") continue;
      if (const std::string file = file_of(words); !file.empty()) check_again(file);
    } catch (const Error&) {
    }
  }
  return 0;
}
