#include "partita/strategies/machine/machine.hpp"

#include "partita/base/error.hpp"
#include "strategies/declare/toml.hpp"
#include "strategies/machine/units.hpp"

#include <cmath>

namespace partita {

namespace {

/// e.g. latency = { us = 2, from = "a source" }
std::string line(const Field& field, const Constant& constant) {
  const Unit& unit = units::shortest(field.quantity, std::span(&constant.value, 1));
  return fmt::format("{} = {{ {} = {}, from = {} }}\n", field.key, units::key(unit.name),
                     units::number(constant.value, unit), quoted(constant.source));
}

/// e.g. us = [1, 2.5]
std::string column(const Quantity& quantity, const std::vector<double>& values) {
  const Unit& unit = units::shortest(quantity, values);
  std::string text;
  for (const double value : values) text += fmt::format("{}{}", text.empty() ? "" : ", ", units::number(value, unit));
  return fmt::format("{} = [{}]\n", units::key(unit.name), text);
}

std::string lines(const Curve& curve, const Quantity& sizes, const Quantity& values) {
  std::vector<double> x, y;
  for (const auto& [size, value] : curve.points) {
    x.push_back(size);
    y.push_back(value);
  }
  return column(sizes, x) + column(values, y) + fmt::format("from = {}\n", quoted(curve.source));
}

std::string print_level(const Level& level) {
  std::string text = fmt::format("\n[[level]]\nname = {}\n", quoted(level.name));
  if (level.ranks.value > 0) text += line(fields::ranks, level.ranks);
  text += line(fields::latency, level.latency) + line(fields::bandwidth, level.bandwidth) +
          line(fields::links, level.links) + line(fields::fan_out, level.fan_out) +
          line(fields::overlap, level.overlap);
  if (level.reduction.value > 0) text += line(fields::reduction, level.reduction);
  for (const auto& [of, curve] : level.verbs) {
    text += fmt::format("\n[[level.verb]]\nverb = \"{}\"\nranks = {}\n", partita::name(of.verb), of.ranks);
    if (of.inside > 1) text += fmt::format("inside = {}\n", of.inside);
    text += lines(curve, units::bytes, units::time);
  }
  return text;
}

}  // namespace

double Curve::at(double size) const {
  require(!points.empty(), "a curve without points");
  const auto above = std::upper_bound(points.begin(), points.end(), size,
                                      [](double value, const auto& point) { return value < point.first; });
  if (above == points.begin()) return points.front().second;
  const auto& [x0, y0] = *std::prev(above);
  if (above == points.end()) return y0;
  const auto& [x1, y1] = *above;
  return y0 * std::pow(y1 / y0, std::log(size / x0) / std::log(x1 / x0));
}

double Curve::seconds(double size) const {
  const double time = at(size);
  return size > points.back().first ? time * (size / points.back().first) : time;
}

Machine Machine::load(const std::string& path) { return parse(read_file("machine", path), path); }

std::string Machine::print() const {
  std::string text = fmt::format("name = {}\n", quoted(name)) + line(fields::memory, memory) +
                     line(fields::memory_bandwidth, memory_bandwidth) + line(fields::arithmetic, arithmetic) +
                     line(fields::kernel, kernel);
  for (const auto& [kind, curve] : efficiency)
    text += fmt::format("\n[efficiency.{}]\n", partita::name(kind)) + lines(curve, units::operations, units::share);
  for (const auto& level : levels) text += print_level(level);
  return text;
}

int Machine::level_of(int rank, int other) const {
  require(!levels.empty(), "a machine without levels");
  const auto last = levels.size() - 1;
  for (std::size_t i = 0; i < last; ++i) {
    const int unit = static_cast<int>(levels[i].ranks.value);
    if (rank / unit == other / unit) return static_cast<int>(i);
  }
  return static_cast<int>(last);
}

Machine default_machine() {
  const Curve dense{{{1e5, 0.05}, {1e7, 0.6}, {1e9, 0.95}}, "assumed: small kernels reach less"};
  Level node{"node",
             {0, ""},
             {1.5e-6, "assumed: two ranks waiting for each other in shared memory"},
             {4e9, "assumed: two copies through shared memory"},
             {1, "assumed: one link per rank"},
             {1, "assumed: all links can be busy at once"},
             {0, "the ranks' own cores do the copies"},
             {}};
  return {"two cores",
          {12 * units::gi, "assumed: half of 24 GiB"},
          {10e9, "assumed: half of the memory bandwidth of two cores"},
          {90e9, "assumed: a core with AVX-512"},
          {1e-6, "assumed: a function call and its setup"},
          {{KernelKind::others, {{{1, 0.1}}, "assumed: loops without fused operations"}},
           {KernelKind::conv, dense},
           {KernelKind::product, dense}},
          {node}};
}

}  // namespace partita
