#include "src/cli/options/option_values.hpp"

#include "partita/base/error.hpp"
#include "src/base/plain_text.hpp"
#include "src/system/host.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <string_view>

namespace partita::cli {

void check_optimizer(const Optimizer& optimizer) {
  const auto alone = [&](const char* option, auto Optimizer::*number) {
    Optimizer one;  // with its own values, which are allowed
    one.*number = optimizer.*number;
    naming_option(option, one.*number, [&] { one.check(); });
  };
  alone("--rate", &Optimizer::rate);
  alone("--momentum", &Optimizer::momentum);
  alone("--beta1", &Optimizer::beta1);
  alone("--beta2", &Optimizer::beta2);
  alone("--epsilon", &Optimizer::epsilon);
  alone("--trust", &Optimizer::trust);
  alone("--weight-decay", &Optimizer::weight_decay);
  alone("--warm-up", &Optimizer::warm_up);
  alone("--decay-floor", &Optimizer::floor);
  alone("--clip-norm", &Optimizer::clip_norm);
  naming_option("--nesterov", [&] { optimizer.check(); });
}

BatchNorm parse_batch_norm(const std::string& text) {
  if (text == "synchronized") return {};
  if (text == "local") return {.statistics = Statistics::local};
  constexpr std::string_view prefix = "ranks=";
  if (text.starts_with(prefix))
    if (const auto ranks = parse_number<int>(text.substr(prefix.size())); ranks && *ranks >= 1)
      return {.statistics = Statistics::ranks, .ranks = *ranks};
  fail("--batch-norm {}: write synchronized, local or ranks=N, with N of 1 or more", text);
}

std::optional<Index> parse_label(const std::string& text) {
  if (const auto label = parse_number<std::int32_t>(text)) return *label;
  fail("a label is a whole number of 32 bits");
}

OnNan parse_on_nan(const std::string& text) {
  if (text == "stop") return OnNan::stop;
  if (text == "skip") return OnNan::skip;
  fail("--on-nan {}: write stop or skip", text);
}

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

double parse_time(const char* option, const std::string& text) {
  static constexpr std::string_view units = "dhms";  // each at most once, in this order
  static constexpr std::array<double, 4> seconds_of{86400, 3600, 60, 1};
  double all = 0;
  std::size_t unit = 0;
  const char *at = text.data(), *const end = text.data() + text.size();
  while (at != end) {
    double value = 0;
    const auto [rest, problem] = std::from_chars(at, end, value, std::chars_format::fixed);
    const bool is_plain = rest == end && at == text.data();
    unit = rest == end ? units.size() - 1 : units.find(*rest, unit);
    if (problem != std::errc() || unit == units.npos || unit == units.size() || !(value >= 0) ||
        (rest == end && !is_plain)) {
      all = 0;
      break;
    }
    all += value * seconds_of[unit];
    at = is_plain ? end : rest + 1;
    ++unit;
  }
  if (!(all > 0 && std::isfinite(all)))
    fail("{} {}: write a time above 0, as 23h50m, 1.5h, 90m, 20s or 1d, or a number of seconds", option, text);
  return all;
}

void check_threads(int threads) {
  constexpr int most_per_core = 8;
  const int cores = allowed_cores();
  if (threads < 1) fail("--threads {}: it must be 1 or more", threads);
  if (threads > most_per_core * cores)
    fail("--threads {}: a rank may use {}, and more than {} threads a core only wait for each other; give {} or less",
         threads, counted(cores, "core"), most_per_core, most_per_core * cores);
}

std::string threads_note(int threads) {
  const int cores = allowed_cores();
  if (threads <= cores) return "";
  return fmt::format("--threads {}: a rank may use only {}; more threads than cores make it slower", threads,
                     counted(cores, "core"));
}

}  // namespace partita::cli
