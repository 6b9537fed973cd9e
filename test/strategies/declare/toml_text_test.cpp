#include "strategies/declare/toml_text.hpp"

#include "partita/strategies/declare/strategy.hpp"
#include "partita/strategies/machine/machine.hpp"
#include "test/support/error_of.hpp"

#include <gtest/gtest.h>

#include <string>

namespace partita::toml_text_test {
namespace {

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(TomlText, ANulByteIsRefusedWithItsPlace) {
  const std::string nul(1, '\0');
  const auto refused = [](const std::string& text) { return test::error_of([&] { check_toml_text(text, "f.toml"); }); };
  EXPECT_TRUE(refused("grid = \"y=2\"\n" + nul + "\n[[layer]]\n").starts_with("f.toml, line 2, column 1: a NUL byte"));
  EXPECT_TRUE(refused(std::string(40, '\0')).starts_with("f.toml, line 1, column 1: a NUL byte"));
  EXPECT_TRUE(refused("a = 1\n# \xc3\xa4 " + nul).starts_with("f.toml, line 2, column 5: a NUL byte"));
  EXPECT_TRUE(refused("a = 1\n" + nul).starts_with("f.toml, line 2, column 1: a NUL byte"));  // at the end
}

TEST(TomlText, AKeyOfVeryManyPartsIsRefused) {
  const std::string key = repeated("a.", 39999) + "a";
  const std::string texts[]{key + " = 1",
                            "[" + key + "]\n",
                            "[[" + key + "]]\n",
                            "x = {" + key + " = 1}",
                            "x = [{" + repeated("\"b\".", 40000) + "a = 1}]",
                            "x = \"\"\"\n\"\"\"\n" + key + " = 1"};
  for (const std::string& text : texts) {
    EXPECT_NE(test::error_of([&] { check_toml_text(text, "f.toml"); }).find("a key of more than 16 parts"),
              std::string::npos);
    EXPECT_NE(test::error_of([&] { Strategy::parse(text, "f.toml"); }).find("a key of more than 16 parts"),
              std::string::npos);
    EXPECT_NE(test::error_of([&] { Machine::parse(text, "f.toml"); }).find("a key of more than 16 parts"),
              std::string::npos);
  }
}

TEST(TomlText, DotsOfOtherThingsAreNotCounted) {
  const std::string dots = repeated(".", 50);
  for (const std::string& text :
       {"a = \"" + dots + "\"", "a = '" + dots + "'", "# " + dots + "\na = 1",
        "a = \"\"\"" + dots + "\n" + dots + "\"\"\"", "a = '''" + dots + "'''", "a = [" + repeated("1.5, ", 50) + "]",
        repeated("a.b.c.d.e.f.g.h = 1\n", 50), "\"" + dots + "\" = 1", "a = \"\\\"" + dots + "\""})
    check_toml_text(text, "f.toml");
}

}  // namespace
}  // namespace partita::toml_text_test
