#include "layouts/notation.hpp"

#include "partita/base/error.hpp"
#include "src/base/plain_text.hpp"

namespace partita {

void fail_notation(std::string_view text, std::size_t column, const std::string& why) {
  fail("layout \"{}\", column {}: {}\n    {}\n    {}^", text, column + 1, why, text, std::string(column, ' '));
}

namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::vector<Placement> placements() {
    std::vector<Placement> words;
    for (skip_blanks(); at_ < text_.size(); skip_blanks()) words.push_back(placement());
    return words;
  }

 private:
  Placement placement() {
    Placement word{.dim = name("a dimension"), .axes = {}};
    if (peek() != '@') {
      if (at_ < text_.size() && !blank()) fail_notation(text_, at_, fmt::format("unexpected '{}'", peek()));
      return word;
    }
    ++at_;
    if (peek() != '(') {
      word.axes.push_back(name("an axis"));
    } else {
      do {
        ++at_;
        skip_blanks();
        word.axes.push_back(name("an axis"));
        skip_blanks();
      } while (peek() == ',');
      if (peek() != ')') fail_notation(text_, at_, "expected ',' or ')'");
      ++at_;
    }
    if (at_ < text_.size() && !blank()) fail_notation(text_, at_, "expected a space before the next dimension");
    return word;
  }

  Placement::Name name(std::string_view what) {
    const auto begin = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]) || text_[at_] == '_')) ++at_;
    if (at_ == begin) fail_notation(text_, at_, fmt::format("expected the name of {}", what));
    return {std::string(text_.substr(begin, at_ - begin)), begin};
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool blank() const { return peek() == ' ' || peek() == '\t'; }
  void skip_blanks() {
    while (blank()) ++at_;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<Placement> parse_notation(std::string_view text) { return Reader(text).placements(); }

std::string print_notation(const std::vector<Placement>& words) {
  std::string text;
  for (const auto& [dim, axes] : words) {
    text += fmt::format("{}{}", text.empty() ? "" : " ", dim.text);
    for (std::size_t i = 0; i < axes.size(); ++i)
      text += fmt::format("{}{}", i > 0 ? "," : axes.size() > 1 ? "@(" : "@", axes[i].text);
    if (axes.size() > 1) text += ")";
  }
  return text;
}

}  // namespace partita
