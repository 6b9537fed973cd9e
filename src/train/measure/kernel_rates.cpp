#include "src/train/measure/kernel_rates.hpp"

#include "partita/strategies/plan/bind.hpp"
#include "src/train/measure/layer_times.hpp"
#include "strategies/cost/local_work.hpp"

#include <algorithm>
#include <array>

namespace partita {

namespace {

/// A layer to be timed: its forward time against its operations, or against the bytes that it moves.
struct Probe {
  KernelKind kind;
  double flops = 0, elements = 0;  // the elements that it reads and writes
  Index batch = 4;
  Model model;
};

std::vector<Probe> probes(const ProbeSizes& sizes) {
  std::vector<Probe> all;
  const auto area = static_cast<double>(sizes.image * sizes.image);
  for (const Index c : sizes.filters) {
    Probe probe{KernelKind::conv, 0, 0, sizes.images, Model("probe")};
    auto t = probe.model.input("in", {.channels = c, .spatial = {sizes.image, sizes.image}});
    t = probe.model.conv("probe", t, {.filters = c, .kernel = 3, .padding = 1});
    probe.model.softmax_cross_entropy("loss", probe.model.linear("out", t, {.features = 2}));
    probe.flops = 2.0 * 9 * static_cast<double>(c * c * sizes.images) * area;
    all.push_back(std::move(probe));
  }
  for (const Index c : sizes.features) {
    Probe probe{KernelKind::product, 0, 0, sizes.rows, Model("probe")};
    auto t = probe.model.input("in", {.channels = c, .spatial = {}});
    t = probe.model.linear("probe", t, {.features = c});
    probe.model.softmax_cross_entropy("loss", probe.model.linear("out", t, {.features = 2}));
    probe.flops = 2.0 * static_cast<double>(c * c * sizes.rows);
    all.push_back(std::move(probe));
  }
  for (std::size_t i = 0; i < sizes.channels.size(); ++i) {
    const Index c = sizes.channels[i];
    Probe probe{KernelKind::others, 0, 0, sizes.samples[i], Model("probe")};
    auto t = probe.model.input("in", {.channels = c, .spatial = {64, 64}});
    t = probe.model.relu("probe", probe.model.conv("first", t, {.filters = c, .kernel = 1, .groups = c}));
    probe.model.softmax_cross_entropy("loss", probe.model.linear("out", t, {.features = 2}));
    probe.elements = 2.0 * static_cast<double>(c * probe.batch) * 64 * 64;
    all.push_back(std::move(probe));
  }
  return all;
}

double time_probe(const Probe& probe, DType dtype, const MeasureOptions& options, Communicator& world) {
  const Plan plan = bind(probe.model, Strategy(), {.batch = probe.batch, .dtype = dtype, .optimizer = {}});
  MeasureOptions quick = options;
  quick.budget = 1;
  const KernelTimes times = measure_layers(plan, 0, quick, KernelTimes(), world);
  const LayerPlan& layer = plan.layers[probe.model.find("probe")];
  return times.find(local_work(layer, 0, plan.workload), timed_loop(plan, 0))->forward;
}

/// What kernels of one type reach: operations per second by their operations, and the best of them.
struct Rates {
  std::map<KernelKind, std::vector<std::pair<double, double>>> points;
  double best = 0;

  Curve share(KernelKind kind, const std::string& source) const {
    Curve curve{points.at(kind), source};
    for (auto& [flops, rate] : curve.points) rate /= best;
    return curve;
  }
};

/// Measures the kernels of a type. Those that are limited by memory set the machine's bandwidth, if it has none.
Rates measure_rates(Machine& machine, DType dtype, const MeasureOptions& options, const ProbeSizes& sizes,
                    const std::string& source, Communicator& world) {
  Rates rates;
  for (const auto& probe : probes(sizes)) {
    if (probe.flops == 0 && machine.memory_bandwidth.value > 0) continue;
    const double seconds = time_probe(probe, dtype, options, world);
    if (probe.flops > 0) {
      rates.points[probe.kind].emplace_back(probe.flops, probe.flops / seconds);
      rates.best = std::max(rates.best, probe.flops / seconds);
      continue;
    }
    const double bytes = probe.elements * static_cast<double>(size_of(dtype));
    const std::string of = fmt::format("{}, relu of {}", source, print_bytes(static_cast<Index>(bytes / 2)));
    if (machine.kernel.value == 0)
      machine.kernel = {seconds, of};
    else
      machine.memory_bandwidth = {bytes / seconds, of};
  }
  return rates;
}

std::string source_of(const MeasureOptions& options, DType dtype, const Communicator& world) {
  return fmt::format("measured: {} ranks at once, {}", world.size(), backend_of_times(options, dtype));
}

constexpr std::string_view fastest = ", the fastest product or convolution";

void measure_cpu(Machine& machine, const MeasureOptions& options, const ProbeSizes& sizes, Communicator& world) {
  const std::string source = source_of(options, DType::f32, world);
  const Rates rates = measure_rates(machine, DType::f32, options, sizes, source, world);
  machine.arithmetic = {rates.best, fmt::format("{}{}", source, fastest)};
  for (const auto& [kind, points] : rates.points) machine.efficiency[kind] = {rates.share(kind, source)};
}

/// Measures the types of tensor cores one by one. `options` decides whether f32 uses them.
void measure_device(Machine& machine, const MeasureOptions& options, const ProbeSizes& sizes, Communicator& world) {
  machine.f32_uses = options.tf32 ? Precision::tf32 : Precision::f32;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const std::string source = source_of(options, dtype, world) + " in " + std::string(name(dtype));
    const Rates rates = measure_rates(machine, dtype, options, sizes, source, world);
    const Precision precision = machine.precision(KernelKind::product, dtype);
    machine.peaks[precision] = {rates.best, fmt::format("{}{}", source, fastest)};
    for (const auto& [kind, points] : rates.points) {
      if (dtype == DType::f32)
        machine.efficiency[kind].curve = rates.share(kind, source);
      else
        machine.efficiency[kind].of_type[precision] = rates.share(kind, source);
    }
  }
}

}  // namespace

void measure_kernels(Machine& machine, const MeasureOptions& options, Communicator& world) {
  measure_kernels(machine, options, options.device ? probes_of_device : probes_of_cpu, world);
}

void measure_kernels(Machine& machine, const MeasureOptions& options, const ProbeSizes& sizes, Communicator& world) {
  options.device ? measure_device(machine, options, sizes, world) : measure_cpu(machine, options, sizes, world);
  machine.efficiency[KernelKind::others] = {{{{1, 1}}, "assumed: other kernels are limited by memory"}};
}

}  // namespace partita
