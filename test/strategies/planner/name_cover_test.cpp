// Lists of rules give every name a value that it accepts, and are as short as those that a complete search finds.
#include "strategies/planner/name_cover.hpp"
#include "partita/strategies/declare/strategy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace partita::test::name_cover_test {
namespace {

bool matches(const std::string& pattern, const std::string& name) {
  return Strategy::Rule{pattern, {}, ""}.matches(name);
}

/// Returns the value that a list gives a name, or -1.
int value_of(const std::vector<NameRule>& rules, const std::string& name) {
  int value = -1;
  for (const NameRule& rule : rules)
    if (matches(rule.match, name)) value = rule.value;
  return value;
}

void expect_right(const std::vector<NameRule>& rules, const std::vector<NamedChoice>& choices) {
  for (const NamedChoice& choice : choices) {
    const int value = value_of(rules, choice.name);
    if (choice.accepts == 0)
      EXPECT_EQ(value, -1) << choice.name;
    else
      EXPECT_TRUE(value >= 0 && (choice.accepts >> value & 1U) != 0) << choice.name << " gets " << value;
  }
}

std::vector<std::string> print(const std::vector<NameRule>& rules) {
  std::vector<std::string> texts;
  for (const auto& [match, value] : rules) texts.push_back(fmt::format("{} {}", match, value));
  return texts;
}

TEST(NameCover, WritesTheGeneralRuleFirst) {
  std::vector<NamedChoice> choices{{"conv1", 1}, {"pool1", 1}};
  for (const char* block : {"res2a", "res2b", "res3a", "res3b"})
    for (const char* part : {"_1", "_2", "_add"}) {
      const std::string name = fmt::format("{}{}", block, part);
      const int value = name == "res3a_1" ? 2 : name[3] == '3' ? 1 : 0;
      choices.push_back({name, std::uint64_t{1} << value});
    }
  EXPECT_EQ(print(cover_names(choices)), (std::vector<std::string>{"* 0", "res3* 1", "res3a_1 2"}));
}

TEST(NameCover, NamesThatMayNotMatchStayOut) {
  const std::vector<NamedChoice> choices{{"fc1", 1}, {"fc2", 1}, {"fc10", 1}, {"fc", 0}, {"conv1", 0}, {"relu_fc1", 0}};
  const auto rules = cover_names(choices);
  expect_right(rules, choices);
  EXPECT_EQ(print(rules), (std::vector<std::string>{"fc*? 0"})) << "fc* would match fc too";
}

TEST(NameCover, AnEmptyListCoversNothing) {
  EXPECT_TRUE(cover_names({}).empty());
  EXPECT_TRUE(cover_names({{"a", 0}, {"b", 0}}).empty());
}

TEST(NameCover, FreeNamesGetAnyValueOrNone) {
  const std::vector<NamedChoice> choices{{"image", 0, true}, {"conv1", 1}, {"conv2", 1}, {"fc", 2}, {"loss", 0, true}};
  EXPECT_EQ(print(cover_names(choices)), (std::vector<std::string>{"conv* 0", "fc 1"}));
  EXPECT_TRUE(cover_names({{"image", 0, true}}).empty());
}

TEST(NameCover, NamesThatAcceptSeveralValuesNeedNoRule) {
  EXPECT_EQ(cover_names({{"conv1", 0b01}, {"fc", 0b11}, {"conv2", 0b01}, {"loss", 0b11}}).size(), 1U);
}

/// Returns the least number of rules, at most `most`, that give all names their values, or most + 1. Rules match any
/// set of names that some pattern with one or two * matches, found by trying all substrings; ? is not tried.
class Complete {
 public:
  explicit Complete(const std::vector<NamedChoice>& choices) : choices_(choices) {
    std::set<std::string> patterns;
    for (const NamedChoice& choice : choices) {
      const std::string& name = choice.name;
      for (std::size_t i = 0; i <= name.size(); ++i)
        for (std::size_t j = i; j <= name.size(); ++j) {
          patterns.insert(fmt::format("{}*{}", name.substr(0, i), name.substr(j)));
          patterns.insert(fmt::format("*{}*", name.substr(i, j - i)));
        }
      patterns.insert(name);
    }
    for (const std::string& pattern : patterns) {
      std::uint64_t set = 0;
      for (std::size_t i = 0; i < choices.size(); ++i)
        if (matches(pattern, choices[i].name)) set |= std::uint64_t{1} << i;
      sets_.insert(set);
    }
  }

  int least(int most) const {
    std::uint64_t undecided = 0;
    for (std::size_t i = 0; i < choices_.size(); ++i)
      if (choices_[i].accepts != 0) undecided |= std::uint64_t{1} << i;
    for (int rules = 0; rules <= most; ++rules)
      if (covers(undecided, rules)) return rules;
    return most + 1;
  }

 private:
  /// From the last rule to the first: each decides undecided names of one value.
  bool covers(std::uint64_t undecided, int rules) const {
    if (undecided == 0) return true;
    if (rules == 0) return false;
    for (const std::uint64_t set : sets_)
      for (int value = 0; value < 3; ++value) {
        bool right = (set & undecided) != 0;
        for (std::size_t i = 0; right && i < choices_.size(); ++i) {
          const bool matched = (set >> i & 1U) != 0, open = (undecided >> i & 1U) != 0;
          right = !matched || (choices_[i].accepts != 0 && (!open || (choices_[i].accepts >> value & 1U) != 0));
        }
        if (right && covers(undecided & ~set, rules - 1)) return true;
      }
    return false;
  }

  const std::vector<NamedChoice>& choices_;
  std::set<std::uint64_t> sets_;
};

TEST(NameCover, IsAsShortAsACompleteSearchFinds) {
  constexpr int most = 4;
  std::mt19937_64 random(1);
  int compared = 0, longer = 0;
  for (int drawn = 0; drawn < 60; ++drawn) {
    std::vector<NamedChoice> choices;
    for (const char* part : {"conv", "bn_conv", "relu_conv"})
      for (int block = 1; block <= 3; ++block) choices.push_back({fmt::format("{}{}", part, block), 1});
    const auto paint = [&](const std::string& pattern, std::uint64_t accepts) {
      for (NamedChoice& choice : choices)
        if (matches(pattern, choice.name)) choice.accepts = accepts;
    };
    const std::vector<std::string> patterns{"*1", "*2", "*3", "bn*", "conv*", "relu*", "*_*", "conv2", "bn_conv3"};
    for (int rule = 0; rule < 3; ++rule) paint(patterns[random() % patterns.size()], std::uint64_t{1} << random() % 3);
    if (drawn % 5 == 0) paint(patterns[random() % patterns.size()], 0);
    const auto rules = cover_names(choices);
    expect_right(rules, choices);
    const int least = Complete(choices).least(most);
    if (least > most) continue;
    ++compared;
    EXPECT_LE(static_cast<int>(rules.size()), least + 1) << fmt::format("{}", fmt::join(print(rules), ", "));
    longer += static_cast<int>(rules.size()) > least ? 1 : 0;
  }
  EXPECT_GE(compared, 50);
  EXPECT_LE(longer, 3) << "of " << compared;
}

}  // namespace
}  // namespace partita::test::name_cover_test
