#include "src/cli/support/command_line.hpp"

#include "partita/base/error.hpp"

#include <string>
#include <vector>

namespace partita::cli {

namespace po = boost::program_options;

namespace {

std::vector<std::string> names(const po::options_description& group) {
  std::vector<std::string> names;
  for (const auto& option : group.options()) names.push_back("--" + option->long_name());
  return names;
}

}  // namespace

std::string program_name(int argc, char** argv) {
  const std::string path = argc > 0 ? argv[0] : "partita";
  return path.substr(path.rfind('/') + 1);
}

po::variables_map read_command_line(int argc, char** argv, const po::options_description& all, const char* words) {
  constexpr int exact = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
  po::variables_map values;
  po::positional_options_description places;
  if (words != nullptr) places.add(words, -1);
  try {
    po::store(po::command_line_parser(argc, argv).options(all).positional(places).style(exact).run(), values);
    if (values.count("help") == 0) po::notify(values);
  } catch (const po::unknown_option& error) {
    fail("there is no option '{}'{}; --help lists the options", error.get_option_name(),
         did_you_mean(error.get_option_name(), names(all)));
  } catch (const po::too_many_positional_options_error&) {
    fail("the command line has a word that belongs to no option; --help shows how to write it");
  } catch (const po::error& error) {
    fail("{}; --help lists the options", error.what());
  }
  return values;
}

}  // namespace partita::cli
