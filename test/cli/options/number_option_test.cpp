#include "src/cli/options/number_option.hpp"

#include "src/cli/program/verbs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <typeindex>
#include <vector>

namespace partita::cli::number_option_test {
namespace {

namespace po = boost::program_options;

TEST(NumberOption, EveryOptionWithANumberIsReadWithoutALocale) {
  const std::vector<std::type_index> numbers{typeid(int),
                                             typeid(Index),
                                             typeid(std::uint64_t),
                                             typeid(double),
                                             typeid(float),
                                             typeid(std::vector<int>),
                                             typeid(std::vector<Index>),
                                             typeid(std::vector<double>)};
  int found = 0;
  const Program program;
  for (const VerbEntry* verb : verbs()) {
    const VerbOptions options = options_of(*verb, "partita", program);
    for (const auto* option : options.listed()) {
      const auto* typed = dynamic_cast<const po::typed_value_base*>(option->semantic().get());
      if (typed == nullptr || std::find(numbers.begin(), numbers.end(), typed->value_type()) == numbers.end()) continue;
      ++found;
      EXPECT_NE(dynamic_cast<const NumberOption*>(option->semantic().get()), nullptr)
          << verb->name << " --" << option->long_name();
    }
  }
  EXPECT_GT(found, 100);
}

/// Parses words as options with a whole number, a decimal and several numbers.
po::variables_map parsed(const std::vector<std::string>& words, int& whole, double& decimal, std::vector<Index>& many) {
  po::options_description all;
  all.add_options()("whole", number(&whole)->default_value(1000000))("decimal", number(&decimal)->default_value(0.5))(
      "many", number(&many)->multitoken());
  po::variables_map values;
  po::store(po::command_line_parser(words).options(all).run(), values);
  po::notify(values);
  return values;
}

TEST(NumberOption, ValuesDefaultsAndRefusals) {
  int whole = 0;
  double decimal = 0;
  std::vector<Index> many;
  parsed({"--decimal=1.125", "--many", "3", "5"}, whole, decimal, many);
  EXPECT_EQ(whole, 1000000);
  EXPECT_EQ(decimal, 1.125);
  EXPECT_EQ(many, (std::vector<Index>{3, 5}));
  for (const char* word :
       {"--whole=1.000", "--whole=99999999999", "--whole=x", "--decimal=0,5", "--decimal= 1", "--many=1x"})
    EXPECT_THROW(parsed({word}, whole, decimal, many), po::invalid_option_value) << word;
  EXPECT_THROW(parsed({"--whole=1", "--whole=2"}, whole, decimal, many), po::multiple_occurrences);
}

}  // namespace
}  // namespace partita::cli::number_option_test
