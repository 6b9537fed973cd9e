#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace partita {

// Text that reads the same in every locale: a program or its user may have set one in which numbers are written with
// decimal commas and letters have other cases. Numbers are read by parse_number() and printed by fmt's "{}".

/// Returns the number that the text is, e.g. 5, -0.25 or 1e-8. Returns nothing if the text is anything else, has blanks
/// or other characters around the number, or if the type cannot hold the number.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || rest != end) return std::nullopt;
  return number;
}

/// True for an ASCII digit.
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
/// True for an ASCII letter.
constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
/// Returns the capital of an ASCII letter, and other characters as they are.
constexpr char upper_case(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace partita
