#include "src/base/plain_text.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <locale>
#include <string>

namespace partita::plain_text_test {
namespace {

/// Numbers as in German: 1.234,5.
class Commas : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

/// A locale of C++ with decimal commas while the object lives.
class InCommas {
 public:
  InCommas() : before_(std::locale::global(std::locale(std::locale::classic(), new Commas))) {}
  ~InCommas() { std::locale::global(before_); }
  InCommas(const InCommas&) = delete;
  InCommas& operator=(const InCommas&) = delete;

 private:
  std::locale before_;
};

TEST(PlainText, NumbersAreReadWholeInEveryLocale) {
  for (const bool commas : {false, true}) {
    const std::optional<InCommas> locale = commas ? std::optional<InCommas>(std::in_place) : std::nullopt;
    EXPECT_EQ(parse_number<double>("0.05"), 0.05);
    EXPECT_EQ(parse_number<double>("1.125"), 1.125);
    EXPECT_EQ(parse_number<double>(".5"), 0.5);
    EXPECT_EQ(parse_number<double>("-1e-8"), -1e-8);
    EXPECT_EQ(parse_number<double>("+3"), 3);
    EXPECT_EQ(parse_number<double>("0,05"), std::nullopt);
    EXPECT_EQ(parse_number<int>("1.000"), std::nullopt);
    EXPECT_EQ(parse_number<int>("1000"), 1000);
  }
}

TEST(PlainText, WhatIsNoNumberOfTheTypeIsNothing) {
  for (const char* text : {"", " 1", "1 ", "1x", "+", "-", "+-1", "++1", "0x10", "one"}) {
    EXPECT_EQ(parse_number<int>(text), std::nullopt) << text;
    EXPECT_EQ(parse_number<double>(text), std::nullopt) << text;
  }
  EXPECT_EQ(parse_number<int>("2147483647"), 2147483647);
  EXPECT_EQ(parse_number<int>("2147483648"), std::nullopt);
  EXPECT_EQ(parse_number<int>("1.5"), std::nullopt);
  EXPECT_EQ(parse_number<std::uint64_t>("18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(parse_number<std::uint64_t>("-1"), std::nullopt);
  EXPECT_EQ(parse_number<double>("1e999"), std::nullopt);
}

TEST(PlainText, LettersAreThoseOfAscii) {
  EXPECT_TRUE(is_letter('a') && is_letter('Z') && is_digit('0') && is_digit('9'));
  for (const char c : {'@', '[', '`', '{', '/', ':', '\xe4', '\xff'}) EXPECT_FALSE(is_letter(c) || is_digit(c)) << c;
  EXPECT_EQ(upper_case('i'), 'I');
  EXPECT_EQ(upper_case('1'), '1');
}

}  // namespace
}  // namespace partita::plain_text_test
