#include "partita/train/measure_machine.hpp"

#include "partita/base/philox.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

namespace partita {

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// The largest of all ranks' numbers.
double largest(double mine, Communicator& world) {
  world.all_reduce(&mine, 1, DType::f64, Op::max, {}).wait();
  return mine;
}

/// Seconds of one call, the slowest rank's: the median of several rounds of calls in a row, about 20 ms in all.
double time_calls(Communicator& world, const std::function<void()>& call) {
  call();
  double begin = now();
  call();
  const double once = largest(now() - begin, world);
  const int calls = std::clamp(static_cast<int>(0.002 / std::max(once, 1e-7)), 1, 500);
  std::vector<double> rounds;
  for (int round = 0; round < 9; ++round) {
    largest(0, world);
    begin = now();
    for (int i = 0; i < calls; ++i) call();
    rounds.push_back(largest((now() - begin) / calls, world));
  }
  return median(rounds);
}

/// Sizes at which verbs are measured, in bytes.
std::vector<Index> sizes() {
  std::vector<Index> all;
  for (Index bytes = 8; bytes <= Index{16} << 20; bytes *= 4) all.push_back(bytes);
  return all;
}

/// Both ranks of each pair send to the other at once, as halos do, from tensors.
double time_exchange(Communicator& world, int other, Index bytes) {
  const Index elements = std::max<Index>(bytes / 4, 1);
  const Box box(Shape{{'F', elements}});
  const Tensor out(DType::f32, "F", box), in(DType::f32, "F", box);
  const std::vector<Transfer> peer{{other, box}};
  return time_calls(world, [&] {
    if (other >= 0) world.exchange_boxes({out, peer, in, peer, false}, {}).wait();
  });
}

/// Ranks whose group is not whole only wait for the others.
double time_collective(Communicator& world, Communicator& group, bool whole, Verb verb, Index bytes) {
  const Index elements = std::max<Index>(bytes / 4, group.size());
  std::vector<float> all(static_cast<std::size_t>(elements)), part(all.size());
  std::vector<Index> counts(static_cast<std::size_t>(group.size()), elements / group.size());
  counts[0] += elements % group.size();
  return time_calls(world, [&] {
    if (!whole) return;
    if (verb == Verb::all_reduce) group.all_reduce(all.data(), elements, DType::f32, Op::sum, {}).wait();
    if (verb == Verb::all_gather) group.all_gather(part.data(), all.data(), counts, DType::f32, {}).wait();
    if (verb == Verb::reduce_scatter) group.reduce_scatter(all.data(), part.data(), counts, DType::f32, {}).wait();
  });
}

Curve curve(const std::string& source, const std::function<double(Index bytes)>& seconds) {
  Curve curve{{}, source};
  for (const Index bytes : sizes()) curve.points.emplace_back(static_cast<double>(bytes), seconds(bytes));
  return curve;
}

/// Ranks of this node, if nodes hold equally many consecutive ranks; else 1.
int ranks_a_node(Communicator& world) {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  std::vector<double> hashes(static_cast<std::size_t>(world.size()));
  const auto mine = static_cast<double>(hash(name.data()) >> 12U);
  world.all_gather(&mine, hashes.data(), std::vector<Index>(hashes.size(), 1), DType::f64, {}).wait();
  std::size_t count = 1;
  while (count < hashes.size() && hashes[count] == hashes[0]) ++count;
  if (hashes.size() % count != 0) return 1;
  for (std::size_t i = 0; i < hashes.size(); ++i)
    if (hashes[i] != hashes[i / count * count]) return 1;
  return static_cast<int>(count);
}

/// Pairs, twice as many as long as that fits, and all.
std::vector<int> group_sizes(int all) {
  std::vector<int> sizes;
  for (int size = 2; size < all; size *= 2) sizes.push_back(size);
  sizes.push_back(all);
  return sizes;
}

/// The level of a distance: pairs of ranks that lie so far apart, and groups of so many, `stride` apart.
Level measure_level(const std::string& name, int ranks, int distance, Communicator& world) {
  const std::string source = fmt::format("measured: {} ranks", world.size());
  Level level;
  level.name = name;
  level.ranks = {static_cast<double>(ranks), source};
  level.links = {1, "assumed"};
  level.fan_out = {1, "assumed"};
  level.overlap = {world.asynchronous() ? 1.0 : 0.0, "what the transport says of itself"};
  const int rank = world.rank(), pair = rank / distance % 2 == 0 ? rank + distance : rank - distance;
  const int other = pair < world.size() ? pair : -1;
  Curve& exchange = level.verbs[{Verb::exchange, 2}] = curve(
      source + ", pairs that send to each other", [&](Index bytes) { return time_exchange(world, other, bytes); });
  level.latency = {exchange.points.front().second, source};
  const auto [bytes, seconds] = exchange.points.back();
  level.bandwidth = {bytes / seconds, source};
  for (const int size : group_sizes(ranks / distance)) {
    const auto group = world.split(rank / (size * distance) * distance + rank % distance, rank);
    for (const Verb verb : {Verb::all_reduce, Verb::all_gather, Verb::reduce_scatter})
      level.verbs[{verb, size}] = curve(fmt::format("{}, groups of {}", source, size), [&](Index n) {
        return time_collective(world, *group, group->size() == size, verb, n);
      });
  }
  return level;
}

/// Where there is no other rank to send to.
Level assumed_level() {
  Level level = default_machine().levels.front();
  for (Constant* constant : {&level.latency, &level.bandwidth})
    constant->source += "; nothing was measured, on one rank";
  return level;
}

/// One layer of each size: what its forward takes against its operations, and against the bytes that it moves.
struct Probe {
  std::string kind;
  double flops = 0, bytes = 0;
  Model model;
};

std::vector<Probe> probes() {
  std::vector<Probe> all;
  for (const Index c : {4, 16, 64, 256}) {
    Probe probe{"conv", 0, 0, Model("probe")};
    auto t = probe.model.input("in", {.channels = c, .spatial = {28, 28}});
    t = probe.model.conv("probe", t, {.filters = c, .kernel = 3, .padding = 1});
    probe.model.softmax_cross_entropy("loss", probe.model.linear("out", t, {.features = 2}));
    probe.flops = 2.0 * 9 * static_cast<double>(c * c) * 28 * 28 * 4;
    all.push_back(std::move(probe));
  }
  for (const Index c : {32, 128, 512, 2048}) {
    Probe probe{"product", 0, 0, Model("probe")};
    auto t = probe.model.input("in", {.channels = c, .spatial = {}});
    t = probe.model.linear("probe", t, {.features = c});
    probe.model.softmax_cross_entropy("loss", probe.model.linear("out", t, {.features = 2}));
    probe.flops = 2.0 * static_cast<double>(c * c) * 4;
    all.push_back(std::move(probe));
  }
  for (const Index c : {1, 1024}) {
    Probe probe{"", 0, 0, Model("probe")};
    auto t = probe.model.input("in", {.channels = c, .spatial = {64, 64}});
    t = probe.model.relu("probe", probe.model.conv("first", t, {.filters = c, .kernel = 1, .groups = c}));
    probe.model.softmax_cross_entropy("loss", probe.model.linear("out", t, {.features = 2}));
    probe.bytes = 2.0 * static_cast<double>(c) * 64 * 64 * 4 * 4;
    all.push_back(std::move(probe));
  }
  return all;
}

double time_probe(const Probe& probe, const MeasureOptions& options, Communicator& world) {
  const Plan plan = bind(probe.model, Strategy(), {.batch = 4, .optimizer = {}});
  MeasureOptions quick = options;
  quick.budget = 1;
  const KernelTimes times = measure_layers(plan, 0, quick, KernelTimes(), world);
  return times.find(local_work(plan.layers[static_cast<std::size_t>(probe.model.find("probe"))], 0, plan.workload))
      ->forward;
}

void measure_kernels(Machine& machine, const MeasureOptions& options, Communicator& world) {
  const std::string source = fmt::format("measured: {} ranks at a time", world.size());
  std::map<std::string, std::vector<std::pair<double, double>>> rates;
  for (const auto& probe : probes()) {
    const double seconds = time_probe(probe, options, world);
    if (probe.flops > 0) rates[probe.kind].emplace_back(probe.flops, probe.flops / seconds);
    if (probe.flops > 0) continue;
    const bool small = machine.kernel.value == 0;
    if (small) machine.kernel = {seconds, source + ", one of 128 KiB"};
    if (!small) machine.memory_bandwidth = {probe.bytes / seconds, source + ", relu of 128 MiB"};
  }
  double best = 0;
  for (const auto& [kind, points] : rates)
    for (const auto& [flops, rate] : points) best = std::max(best, rate);
  machine.arithmetic = {best, source + ", the fastest product or convolution"};
  for (auto& [kind, points] : rates) {
    for (auto& [flops, rate] : points) rate /= best;
    machine.efficiency[kind] = {points, source};
  }
  machine.efficiency[""] = {{{1, 1}}, "assumed: what is no product is bound by memory"};
}

}  // namespace

Machine measure_machine(const MeasureOptions& options, Communicator& world) {
  Machine machine;
  machine.name = place_of_times(options, DType::f32);
  const int node = ranks_a_node(world);
  const auto pages = static_cast<double>(sysconf(_SC_PHYS_PAGES)), page = static_cast<double>(sysconf(_SC_PAGESIZE));
  machine.memory = {std::floor(pages * page / node), "the system's, shared by a node's ranks"};
  measure_kernels(machine, options, world);
  if (world.size() == 1) machine.levels.push_back(assumed_level());
  if (node > 1) machine.levels.push_back(measure_level("node", node, 1, world));
  if (node < world.size()) machine.levels.push_back(measure_level("network", world.size(), node, world));
  return machine;
}

}  // namespace partita
