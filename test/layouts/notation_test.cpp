#include "layouts/notation.hpp"

#include "partita/base/error.hpp"
#include "partita/layouts/layout.hpp"
#include "test/support/grids.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace partita::notation_test {
namespace {

const Shape shape{{'N', 8}, {'C', 3}, {'H', 7}};

Layout parse(const std::string& text) { return Layout::parse(text, shape, Grid::parse("data=2 y=3 x=2")); }

std::string message_of(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Notation, ParseIsTheInverseOfPrint) {
  int count = 0;
  for (const auto* text : {"", "a=2", "data=2 y=3", "a=2 y=2 x2_=3", "a=1 b=2 c=1"}) {
    const auto grid = Grid::parse(text);
    for (const auto& layout : test::all_layouts(Shape{{'N', 5}, {'C', 2}, {'W', 3}}, grid)) {
      EXPECT_EQ(Layout::parse(layout.print(), layout.shape(), grid), layout) << layout.print();
      ++count;
    }
  }
  EXPECT_GT(count, 200);
}

TEST(Notation, PrintIsTheInverseOfParse) {
  for (const auto* text : {"N C H", "N@data C H", "N C@(y,x) H", "N C@(x,y) H sum@data", "N C H sum@(y,x)"})
    EXPECT_EQ(parse(text).print(), text);
}

TEST(Notation, UnnamedDimensionsAreWholeAndOrderIsFree) {
  EXPECT_EQ(parse("").print(), "N C H");
  EXPECT_EQ(parse("H@y N@data").print(), "N@data C H@y");
  EXPECT_EQ(parse("sum@(x,data) H@( y )").print(), "N C H@y sum@(data,x)");
  EXPECT_EQ(parse("  N@( data ,\ty )  ").print(), "N@(data,y) C H");
}

TEST(Notation, LayoutsOfOtherAxesOrderDiffer) {
  EXPECT_FALSE(parse("H@(y,x)") == parse("H@(x,y)"));
  EXPECT_FALSE(parse("sum@x") == parse(""));
}

TEST(Notation, WordsKnowTheirColumns) {
  const auto words = parse_notation("N@data H@( y,x) W");
  ASSERT_EQ(words.size(), 3U);
  EXPECT_EQ(words[0].dim.text, "N");
  EXPECT_EQ(words[0].axes[0].column, 2U);
  EXPECT_EQ(words[1].dim.column, 7U);
  ASSERT_EQ(words[1].axes.size(), 2U);
  EXPECT_EQ(words[1].axes[0].column, 11U);
  EXPECT_EQ(words[1].axes[1].text, "x");
  EXPECT_EQ(words[1].axes[1].column, 13U);
  EXPECT_TRUE(words[2].axes.empty());
}

TEST(Notation, ErrorsNameTheColumnAndDrawACaret) {
  struct Case {
    std::string text;
    std::size_t column;  ///< counted from 1
    std::string why;
  };
  const std::vector<Case> cases{
      {"N@dta", 3, "there is no axis 'dta' in the grid \"data=2 y=3 x=2\" (did you mean 'data'?)"},
      {"N@data H@elsewhere", 10, "there is no axis 'elsewhere' in the grid \"data=2 y=3 x=2\""},
      {"N@data D", 8, "there is no dimension 'D'; this tensor has N C H"},
      {"N@data NC@y", 8, "there is no dimension 'NC'"},
      {"N@y H@y", 7, "axis 'y' is used twice"},
      {"N@(y,y)", 6, "axis 'y' is used twice"},
      {"N@y sum@y", 9, "axis 'y' is used twice"},
      {"N H@y N@x", 7, "'N' is named twice"},
      {"sum@y sum@x", 7, "'sum' is named twice"},
      {"N sum", 3, "a pending sum needs its axes"},
      {"N@", 3, "expected the name of an axis"},
      {"N@()", 4, "expected the name of an axis"},
      {"N@(y,)", 6, "expected the name of an axis"},
      {"N@(y x)", 6, "expected ',' or ')'"},
      {"N@(y", 5, "expected ',' or ')'"},
      {"N@(y)H", 6, "expected a space"},
      {"N@y@x", 4, "expected a space"},
      {"N,C", 2, "unexpected ','"},
      {"@y", 1, "expected the name of a dimension"},
      {"H@y !", 5, "expected the name of a dimension"},
  };
  for (const auto& [text, column, why] : cases) {
    const auto message = message_of(text);
    EXPECT_EQ(message.find("layout \"" + text + "\", column " + std::to_string(column) + ": " + why), 0U)
        << text << " gave: " << message;
    const std::string drawing = "\n    " + text + "\n    " + std::string(column - 1, ' ') + "^";
    EXPECT_TRUE(message.ends_with(drawing)) << message;
  }
}

}  // namespace
}  // namespace partita::notation_test
