#include "partita/base/error.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace partita::error_test {
namespace {

TEST(Error, CarriesTheFormattedSentence) {
  try {
    fail("layer '{}' has {} inputs", "add", 2);
    FAIL() << "fail() returned";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "layer 'add' has 2 inputs");
  }
}

TEST(Error, BrokenInvariantEndsTheProcessAndSaysWhere) {
  require(true, "holds");
  EXPECT_DEATH(require(false, "one box a rank"), "internal error: one box a rank \\(.*error_test.cpp:[0-9]+");
}

TEST(DidYouMean, NamesTheNearest) {
  const std::vector<std::string> axes{"data", "y", "x", "channel"};
  EXPECT_EQ(did_you_mean("dat", axes), " (did you mean 'data'?)");
  EXPECT_EQ(did_you_mean("chanel", axes), " (did you mean 'channel'?)");
  EXPECT_EQ(did_you_mean("adta", axes), " (did you mean 'data'?)");
  EXPECT_EQ(did_you_mean("z", axes), " (did you mean 'y'?)");
}

TEST(DidYouMean, IsSilentWhereNothingIsNear) {
  EXPECT_EQ(did_you_mean("data", std::vector<std::string>{}), "");
  EXPECT_EQ(did_you_mean("--grid", std::vector<std::string>{"--tied", "--kind"}), "") << "dashes are no letters";
  EXPECT_EQ(did_you_mean("--girt", std::vector<std::string>{"--grid"}), " (did you mean '--grid'?)")
      << "letters are swapped";
  EXPECT_EQ(did_you_mean("momentum", std::vector<std::string>{"kernel", "stride"}), "");
}

TEST(QuotedList, JoinsWithCommas) {
  EXPECT_EQ(quoted_list(std::vector<std::string>{}), "");
  EXPECT_EQ(quoted_list(std::vector<std::string>{"a"}), "'a'");
  EXPECT_EQ(quoted_list(std::vector<std::string>{"a", "b"}), "'a', 'b'");
}

}  // namespace
}  // namespace partita::error_test
