#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// A unit of a quantity. A number in this unit is `number * times / per` in the quantity's first unit. There are two
/// factors so that decimals of small units (1.5 us) become the nearest double.
struct Unit {
  std::string_view name;
  double times = 1;
  double per = 1;
};

/// A quantity and its units.
struct Quantity {
  std::span<const Unit> units;  ///< the first one is the unit of values in memory
  bool counted = false;         ///< a number is written without its unit: ranks, shares
};

/// A constant in a machine file.
struct Field {
  std::string_view key;
  const Quantity& quantity;
  double least;  ///< values outside least to most are taken for mistakes, e.g. a latency above 1 s
  double most;
  double example;
  bool whole = false;
};

namespace units {

constexpr double ki = 1024, mi = ki * ki, gi = mi * ki, ti = gi * ki;

constexpr Unit of_time[] = {{"s"}, {"ms", 1, 1e3}, {"us", 1, 1e6}, {"ns", 1, 1e9}};
constexpr Unit of_bytes[] = {{"B"},       {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
                             {"KiB", ki}, {"MiB", mi}, {"GiB", gi}, {"TiB", ti}};
constexpr Unit of_bandwidth[] = {{"B/s"},        {"MB/s", 1e6}, {"GB/s", 1e9},
                                 {"TB/s", 1e12}, {"GiB/s", gi}, {"Gbit/s", 1e9, 8}};
constexpr Unit of_arithmetic[] = {{"flop/s"}, {"Gflop/s", 1e9}, {"Tflop/s", 1e12}};
constexpr Unit of_operations[] = {{"flop"}, {"Mflop", 1e6}, {"Gflop", 1e9}, {"Tflop", 1e12}};
constexpr Unit of_ranks[] = {{"ranks"}};
constexpr Unit of_links[] = {{"links"}};
constexpr Unit of_elements[] = {{"elements"}};
constexpr Unit of_ratio[] = {{"ratio"}};
constexpr Unit of_share[] = {{"share"}};

constexpr Quantity time{of_time}, bytes{of_bytes}, bandwidth{of_bandwidth}, arithmetic{of_arithmetic},
    operations{of_operations}, ranks{of_ranks, true}, links{of_links, true}, elements{of_elements, true},
    ratio{of_ratio, true}, share{of_share, true};
constexpr const Quantity* all[] = {&time,  &bytes, &bandwidth, &arithmetic, &operations,
                                   &ranks, &links, &elements,  &ratio,      &share};

/// Returns the units as text: "s, ms, us or ns".
std::string list(const Quantity& quantity);
/// Returns the units' names, as TOML keys.
std::vector<std::string> names(const Quantity& quantity);
/// Returns the unit of this name, or null.
const Unit* find(const Quantity& quantity, std::string_view name);
/// Returns the unit in which the values are shortest to write, among those that reproduce them exactly.
const Unit& shortest(const Quantity& quantity, std::span<const double> values);
/// Prints a value as a number of a unit.
std::string number(double value, const Unit& unit);
/// Prints a value with its unit, e.g. "1.5 us"; without it, e.g. "4", if the quantity is counted.
std::string text(const Quantity& quantity, double value);
/// Returns a unit as a TOML key, in quotes if it is not a bare word.
std::string key(std::string_view name);

}  // namespace units

namespace fields {

constexpr double most_ranks = 1 << 20;

constexpr Field memory{"memory", units::bytes, units::mi, 1024 * units::ti, 80 * units::gi};
constexpr Field memory_bandwidth{"memory-bandwidth", units::bandwidth, 1e6, 1e14, 2039e9};
constexpr Field arithmetic{"arithmetic", units::arithmetic, 1e9, 1e17, 19.5e12};
constexpr Field kernel{"kernel", units::time, 1e-9, 1, 5e-6};
constexpr Field ranks{"ranks", units::ranks, 1, most_ranks, 8, true};
constexpr Field latency{"latency", units::time, 1e-9, 1, 2e-6};
constexpr Field bandwidth{"bandwidth", units::bandwidth, 1e6, 1e14, 300e9};
constexpr Field links{"links", units::links, 1, most_ranks, 8, true};
constexpr Field fan_out{"fan-out", units::ratio, 1, 1000, 2};
constexpr Field overlap{"overlap", units::share, 0, 1, 0.5};
constexpr Field reduction{"reduction", units::bandwidth, 1e6, 1e14, 50e9};
// The points of curves.
constexpr Field operations{"operations", units::operations, 1, 1e24, 1e9};
constexpr Field width{"width", units::elements, 1, 1 << 20, 64};
constexpr Field efficiency{"efficiency", units::share, 1e-6, 1, 0.5};
constexpr Field bytes{"bytes", units::bytes, 1, 1024 * units::ti, 1024};
constexpr Field seconds{"time", units::time, 1e-9, 1000, 1e-6};

}  // namespace fields

}  // namespace partita
