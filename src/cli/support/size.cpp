#include "src/cli/support/size.hpp"

#include "partita/base/error.hpp"

#include <charconv>
#include <map>

namespace partita::cli {

Index parse_size(const char* option, const std::string& text) {
  static const std::map<std::string, double> units{{"", 1},         {"B", 1},       {"KB", 1e3},     {"MB", 1e6},
                                                   {"GB", 1e9},     {"TB", 1e12},   {"KiB", 0x1p10}, {"MiB", 0x1p20},
                                                   {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  double value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string unit(end.ptr, text.data() + text.size());
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? unit.size() : unit.find_first_not_of(' '));
  const auto found = units.find(unit);
  if (end.ec == std::errc::invalid_argument || found == units.end())
    fail("{} {}: write a number of bytes, or a number with the unit KB, MB, GB, TB, KiB, MiB, GiB or TiB", option,
         text);
  const double bytes = value * found->second;
  if (end.ec == std::errc::result_out_of_range || !(bytes >= 1 && bytes < 0x1p62))
    fail("{} {}: it must be 1 B or more and less than 4194304 TiB; leave the option out to set no limit", option, text);
  return static_cast<Index>(bytes);
}

}  // namespace partita::cli
