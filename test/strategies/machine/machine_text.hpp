#pragma once

#include "partita/strategies/machine/machine.hpp"
#include "test/support/error_of.hpp"

namespace partita::test {

/// A machine of two levels with every kind of entry.
constexpr const char* machine_text = R"(name = "cluster"
memory = { GB = 16, from = "a" }
memory-bandwidth = { "GB/s" = 900, from = "b" }
arithmetic = { "Tflop/s" = 15.7, from = "c" }
kernel = { us = 5, from = "d" }
[efficiency.others]
flop = [1]
share = [0.5]
from = "e"
[efficiency.conv]
Gflop = [0.001, 1]
share = [0.1, 0.9]
from = "f"

[[level]]
name = "node"
ranks = { ranks = 4, from = "g" }
latency = { us = 2, from = "h" }
bandwidth = { "GB/s" = 75, from = "i" }
overlap = { share = 0.5, from = "j" }

[[level.verb]]
verb = "all_reduce"
ranks = 2
B = [8, 65536]
us = [2, 20]
from = "k"

[[level]]
name = "network"
latency = { us = 4, from = "l" }
bandwidth = { "Gbit/s" = 100, from = "m" }
fan-out = { ratio = 2, from = "n" }
overlap = { share = 1, from = "o" }
)";

/// Returns the text with the first occurrence of `there` replaced.
inline std::string replaced(const std::string& there, const std::string& other) {
  std::string changed = machine_text;
  const auto at = changed.find(there);
  EXPECT_NE(at, std::string::npos) << there;
  return changed.replace(at, there.size(), other);
}

/// Returns the text with another value on the first line of this key, or without the line if `value` is "".
inline std::string with_value(const std::string& key, const std::string& value) {
  const std::string whole = machine_text;
  const auto start = whole.find("\n" + key + " = ") + 1;
  const auto line = whole.substr(start, whole.find('\n', start) - start);
  return replaced(line, value.empty() ? "" : key + " = " + value);
}

inline Machine edited(const std::string& key, const std::string& value) {
  return Machine::parse(with_value(key, value), "m.toml");
}

/// Returns the error message for the text with that value.
inline std::string refusal(const std::string& key, const std::string& value) {
  return error_of([&] { edited(key, value); });
}

/// Returns the error message for the text with `other` in place of `there`.
inline std::string refusal_of(const std::string& there, const std::string& other) {
  return error_of([&] { Machine::parse(replaced(there, other), "m.toml"); });
}

}  // namespace partita::test
