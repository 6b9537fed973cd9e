#include "strategies/declare/toml_text.hpp"

#include "partita/base/error.hpp"
#include "src/system/system_file.hpp"
#include "strategies/declare/toml.hpp"

#include <sys/stat.h>

#include <map>
#include <mutex>

namespace partita {

namespace {

/// Walks through the text of a TOML file: see check_toml_text().
class TextCheck {
 public:
  TextCheck(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  void run() {
    check_bytes();
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#')
        at_ = std::min(text_.find('\n', at_), text_.size());
      else if (c == '"' || c == '\'')
        skip_string(c);
      else
        count(c);
    }
  }

 private:
  /// Throws Error with the place of a byte.
  [[noreturn]] void refuse(std::size_t at, std::string_view why) const {
    const auto before = text_.substr(0, at);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const auto begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    const auto is_first_byte = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; };  // of UTF-8
    const auto column = std::count_if(before.begin() + static_cast<std::ptrdiff_t>(begin), before.end(), is_first_byte);
    fail("{}, line {}, column {}: {}", file_, line, column + 1, why);
  }

  void check_bytes() const {
    if (const auto at = text_.find('\0'); at != std::string_view::npos)
      refuse(at, "a NUL byte, which TOML does not allow; the file is damaged, or not a text: write it again");
  }

  /// Skips a string. One that does not end is left to toml++.
  void skip_string(char quote) {
    const std::string three(3, quote);
    const bool multiline = text_.substr(at_).starts_with(three);
    const std::string_view end = multiline ? std::string_view(three) : std::string_view(three).substr(0, 1);
    at_ += end.size();
    while (at_ < text_.size() && !text_.substr(at_).starts_with(end) && (multiline || text_[at_] != '\n'))
      at_ += quote == '"' && text_[at_] == '\\' ? 2 : 1;
    at_ = std::min(at_ + end.size(), text_.size());
  }

  /// Counts the parts of a key.
  void count(char c) {
    constexpr int most = 16;
    if (c == '.' && ++dots_ >= most) refuse(at_, fmt::format("a key of more than {} parts", most));
    if (c == '\n' || c == ',' || c == '=' || c == '{' || c == '[') dots_ = 0;
    ++at_;
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
  int dots_ = 0;
};

}  // namespace

void check_toml_text(std::string_view text, const std::string& file) { TextCheck(text, file).run(); }

std::string read_file(std::string_view kind, const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::string> streams;  // the texts that cannot be read again
  const std::scoped_lock lock(mutex);
  if (const auto known = streams.find(path); known != streams.end()) return known->second;
  struct stat there {};
  const bool again = stat(path.c_str(), &there) == 0 && S_ISREG(there.st_mode);
  try {
    std::string text = read_everything(path);
    if (!again) streams.emplace(path, text);
    return text;
  } catch (const Error& error) {
    fail("the {} file {} cannot be read: {}", kind, path, error.what());
  }
}

}  // namespace partita
