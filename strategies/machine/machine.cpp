#include "partita/strategies/machine/machine.hpp"

#include "partita/base/error.hpp"
#include "strategies/declare/toml.hpp"
#include "strategies/machine/units.hpp"

#include <fmt/ranges.h>

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

/// pairs = { links = [[0, 4], [4, 0]], from = "a source" }
std::string print_pairs(const PairLinks& pairs) {
  return fmt::format("pairs = {{ links = {}, from = {} }}\n", pairs.links(), quoted(pairs.source()));
}

std::string print_level(const Level& level) {
  std::string text = fmt::format("\n[[level]]\nname = {}\n", quoted(level.name));
  if (level.ranks.value > 0) text += line(fields::ranks, level.ranks);
  text += line(fields::latency, level.latency) + line(fields::bandwidth, level.bandwidth) +
          line(fields::links, level.links) + line(fields::fan_out, level.fan_out) +
          line(fields::overlap, level.overlap);
  if (level.reduction.value > 0) text += line(fields::reduction, level.reduction);
  if (!level.pairs.empty()) text += print_pairs(level.pairs);
  for (const auto& [of, curve] : level.verbs) {
    text += fmt::format("\n[[level.verb]]\nverb = \"{}\"\nranks = {}\n", partita::name(of.verb), of.ranks);
    if (of.inside > 1) text += fmt::format("inside = {}\n", of.inside);
    text += lines(curve, units::bytes, units::time);
  }
  return text;
}

/// The table of a kind's efficiency, with a table for each type that has its own.
std::string print_efficiency(KernelKind kind, const Efficiency& efficiency) {
  std::string text = fmt::format("\n[efficiency.{}]\n", name(kind));
  if (efficiency.width.value > 0) text += line(fields::width, efficiency.width);
  text += lines(efficiency.curve, units::operations, units::share);
  for (const auto& [type, curve] : efficiency.of_type)
    text +=
        fmt::format("\n[efficiency.{}.{}]\n", name(kind), name(type)) + lines(curve, units::operations, units::share);
  return text;
}

std::string print_peaks(const Machine& machine) {
  std::string text = "\n[arithmetic]\n";
  for (const auto& [type, peak] : machine.peaks) {
    Field field = fields::arithmetic;
    field.key = name(type);
    text += line(field, peak);
  }
  if (machine.f32_uses != Precision::f32) text += fmt::format("f32-uses = \"{}\"\n", name(machine.f32_uses));
  return text;
}

std::string print_ways(const CollectiveWays& collectives) {
  std::string names;
  for (const LevelUse way : collectives.ways) names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", name(way));
  return fmt::format("collectives = {{ ways = [{}], from = {} }}\n", names, quoted(collectives.source));
}

Precision precision_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return Precision::f64;
    case DType::bf16: return Precision::bf16;
    case DType::f16: return Precision::f16;
    default: return Precision::f32;
  }
}

}  // namespace

std::string_view name(Precision precision) {
  switch (precision) {
    case Precision::f64: return "f64";
    case Precision::f32: return "f32";
    case Precision::tf32: return "tf32";
    case Precision::bf16: return "bf16";
    case Precision::f16: return "f16";
  }
  broken("unknown precision");
}

double Curve::at(double size) const {
  if (points.empty()) fail("a curve of a machine has no points; add one, e.g. {{1e6, 0.5}}");
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

Machine Machine::shared_by(int ranks) const {
  Machine machine = *this;
  machine.memory_bandwidth.value = bandwidth_of_each(ranks);
  machine.socket = {};
  return machine;
}

Machine Machine::load(const std::string& path) { return parse(read_file("machine", path), path); }

std::string Machine::print() const {
  std::string text = fmt::format("name = {}\n", quoted(name)) + line(fields::memory, memory) +
                     line(fields::memory_bandwidth, memory_bandwidth);
  if (peaks.empty()) text += line(fields::arithmetic, arithmetic);
  text += line(fields::kernel, kernel);
  if (!collectives.source.empty()) text += print_ways(collectives);
  if (!peaks.empty()) text += print_peaks(*this);
  if (socket.ranks.value > 0)
    text +=
        "\n[socket]\n" + line(fields::ranks, socket.ranks) + line(fields::memory_bandwidth, socket.memory_bandwidth);
  for (const auto& [kind, share] : efficiency) text += print_efficiency(kind, share);
  for (const auto& level : levels) text += print_level(level);
  return text;
}

Precision Machine::precision(KernelKind kind, DType dtype) const {
  const Precision type = precision_of(dtype);
  if (kind == KernelKind::others) return type == Precision::f64 ? type : Precision::f32;
  return type == Precision::f32 ? f32_uses : type;
}

const Constant& Machine::peak(KernelKind kind, DType dtype) const {
  if (peaks.empty()) return arithmetic;
  const Precision type = precision(kind, dtype);
  const auto found = peaks.find(type);
  if (found == peaks.end())
    fail(
        "the machine '{}' does not say how fast it computes in {}; add {} = {{ \"Tflop/s\" = ..., from = \"...\" }} to "
        "its [arithmetic]",
        name, partita::name(type), partita::name(type));
  return found->second;
}

const Efficiency* Machine::find_efficiency(KernelKind kind) const {
  auto found = efficiency.find(kind);
  if (found == efficiency.end()) found = efficiency.find(KernelKind::others);
  return found == efficiency.end() ? nullptr : &found->second;
}

const Curve* Machine::share(KernelKind kind, DType dtype) const {
  const Efficiency* const all = find_efficiency(kind);
  if (all == nullptr) return nullptr;
  const auto own = all->of_type.find(precision(kind, dtype));
  return own == all->of_type.end() ? &all->curve : &own->second;
}

int Machine::level_of(int rank, int other) const {
  if (levels.empty())
    fail("the machine '{}' has no levels; add one, with the latency and the bandwidth of its links", name);
  const auto last = levels.size() - 1;
  for (std::size_t i = 0; i < last; ++i) {
    const int unit = static_cast<int>(levels[i].ranks.value);
    if (rank / unit == other / unit) return static_cast<int>(i);
  }
  return static_cast<int>(last);
}

Machine default_machine() {
  const Efficiency dense{{{{1e5, 0.05}, {1e7, 0.6}, {1e9, 0.95}}, "assumed: small kernels reach less"},
                         {16, "assumed: AVX-512 adds 16 numbers at once"}};
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
          {{KernelKind::others, {{{{1, 0.1}}, "assumed: loops without fused operations"}}},
           {KernelKind::conv, dense},
           {KernelKind::product, dense}},
          {node}};
}

}  // namespace partita
