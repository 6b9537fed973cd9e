#pragma once

#include "partita/base/error.hpp"
#include "partita/base/grid.hpp"
#include "partita/base/optimizer.hpp"
#include "partita/model/layers.hpp"
#include "partita/train/trainer/trainer.hpp"

#include <boost/program_options.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace partita::cli {

/// Returns what f() returns. An Error of f gets the option at the start of its message, unless an option stands there
/// already. So every bad value names its option, and with_place() finds the line of a file that gave it.
template <class F>
auto naming_option(std::string_view option, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const Error& error) {
    const std::string_view what = error.what();
    if (what.starts_with("--")) throw;
    fail("{}: {}", option, what);
  }
}
/// As above, for an option with a value.
template <class Value, class F>
auto naming_option(std::string_view option, const Value& value, F&& f) -> decltype(f()) {
  return naming_option(fmt::format("{} {}", option, value), std::forward<F>(f));
}

/// An option whose text `parse` turns into the value that is stored in `to`. A bad value is reported with its option.
template <class Value, class Parse>
boost::program_options::typed_value<std::string>* parsed(const char* option, Value& to, Parse parse) {
  return boost::program_options::value<std::string>()->notifier(
      [option, &to, parse](const std::string& text) { to = naming_option(option, text, [&] { return parse(text); }); });
}

/// Throws Error if a number of the optimizer is not allowed; the message names the option.
void check_optimizer(const Optimizer& optimizer);

/// Reads the value of --batch-norm: synchronized, local or ranks=N. Throws Error for anything else.
BatchNorm parse_batch_norm(const std::string& text);
/// Reads a label. Throws Error for anything that is no whole number of 32 bits.
std::optional<Index> parse_label(const std::string& text);
/// Reads the value of --on-nan: stop or skip. Throws Error for anything else.
OnNan parse_on_nan(const std::string& text);

/// Returns the bytes of a size such as "4GiB", "500MB" or "123456". Throws Error, with the name of the option, if the
/// text is not a size, or if the size is less than 1 byte or is 2^62 bytes or more.
Index parse_size(const char* option, const std::string& text);

/// Returns the seconds of a time such as "23h50m", "1.5h", "90m", "1d" or "1200" (seconds). Throws Error, with the name
/// of the option, if the text is no time, or none above 0.
double parse_time(const char* option, const std::string& text);

/// Throws Error if `threads` is below 1 or above eight times the cores that this process may use. So many threads wait
/// for each other most of the time, and a system may refuse to start them.
void check_threads(int threads);
/// Returns a note if there are more threads than cores, else "".
std::string threads_note(int threads);

}  // namespace partita::cli
