#include "partita/train/measure/measure_machine.hpp"
#include "partita/strategies/cost/local_work.hpp"
#include "partita/strategies/plan/bind.hpp"

#include "partita/base/philox.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace partita {

namespace {

using Clock = std::function<double()>;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// The largest of all ranks' numbers. Collective.
double largest(double mine, Communicator& world) {
  world.all_reduce(&mine, 1, DType::f64, ReduceOp::max, {}).wait();
  return mine;
}

/// Seconds per call on the slowest rank: the median of 9 rounds of repeated calls, about 20 ms in all.
double time_calls(Communicator& world, const Clock& clock, const std::function<void()>& call) {
  call();
  double begin = clock();
  call();
  const double once = largest(clock() - begin, world);
  const int calls = std::clamp(static_cast<int>(0.002 / std::max(once, 1e-7)), 1, 500);
  std::vector<double> rounds;
  for (int round = 0; round < 9; ++round) {
    largest(0, world);
    begin = clock();
    for (int i = 0; i < calls; ++i) call();
    rounds.push_back(largest((clock() - begin) / calls, world));
  }
  return median(rounds);
}

/// Times an exchange: both ranks of each pair send to each other at once, from tensors, as halos do. Ranks without a
/// partner (-1) wait.
double time_exchange(Communicator& world, const Clock& clock, int other, Index bytes) {
  const Index elements = std::max<Index>(bytes / 4, 1);
  const Box box(Shape{{'F', elements}});
  const Tensor out(DType::f32, "F", box), in(DType::f32, "F", box);
  const std::vector<Transfer> peer{{other, box}};
  return time_calls(world, clock, [&] {
    if (other >= 0) world.exchange_boxes({out, peer, in, peer, false}, {}).wait();
  });
}

/// The memory that collective calls of a measurement work on. Small buffers are reused and stay in the caches, like
/// freshly computed statistics. Large ones walk through more memory than the caches hold, like gradients after the
/// backward pass has moved on.
class Elements {
 public:
  explicit Elements(Index count)
      : count_(count), all_(static_cast<std::size_t>(count >= large ? walked / count * count + count : count)) {}
  float* next() {
    at_ = at_ + count_ < static_cast<Index>(all_.size()) ? at_ + count_ : 0;
    return all_.data() + at_;
  }

 private:
  static constexpr Index large = (Index{1} << 20) / 4, walked = (Index{64} << 20) / 4;
  Index count_, at_ = 0;
  std::vector<float> all_;
};

/// Times a collective in all complete groups at once. Ranks of an incomplete group wait.
double time_collective(Communicator& world, const Clock& clock, Communicator& group, bool whole, Verb verb,
                       Index bytes) {
  const Index elements = std::max<Index>(bytes / 4, group.size());
  Elements all(elements), part(verb == Verb::all_reduce ? 1 : elements);
  std::vector<Index> counts(static_cast<std::size_t>(group.size()), elements / group.size());
  counts[0] += elements % group.size();
  return time_calls(world, clock, [&] {
    if (!whole) return;
    if (verb == Verb::all_reduce) group.all_reduce(all.next(), elements, DType::f32, ReduceOp::sum, {}).wait();
    if (verb == Verb::all_gather) group.all_gather(part.next(), all.next(), counts, DType::f32, {}).wait();
    if (verb == Verb::reduce_scatter) group.reduce_scatter(all.next(), part.next(), counts, DType::f32, {}).wait();
  });
}

/// Returns the number of ranks per node if every node holds equally many consecutive ranks, else 1.
int ranks_a_node(Communicator& world) {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  std::vector<double> hashes(static_cast<std::size_t>(world.size()));
  const auto mine = static_cast<double>(hash_text(name.data()) >> 12U);
  world.all_gather(&mine, hashes.data(), std::vector<Index>(hashes.size(), 1), DType::f64, {}).wait();
  std::size_t count = 1;
  while (count < hashes.size() && hashes[count] == hashes[0]) ++count;
  if (hashes.size() % count != 0) return 1;
  for (std::size_t i = 0; i < hashes.size(); ++i)
    if (hashes[i] != hashes[i / count * count]) return 1;
  return static_cast<int>(count);
}

/// A rank's position for pairs and groups: `place` of `places` along its `line`. A line holds the ranks of one node, or
/// the ranks of equal number on all nodes.
struct Line {
  int line = 0, place = 0, places = 1;
  int stride = 1;  ///< distance in ranks between neighbors on the line

  int partner(int rank) const {
    const int other = place % 2 == 0 ? place + 1 : place - 1;
    return other < places ? rank + (other - place) * stride : -1;
  }
};

/// Returns 2, 4, 8, ... below `places`, and `places` itself.
std::vector<int> sizes_up_to(int places) {
  std::vector<int> sizes;
  for (int size = 2; size < places; size *= 2) sizes.push_back(size);
  sizes.push_back(places);
  return sizes;
}

/// Measures the levels of a network with `node` ranks per node, with messages of up to `longest` bytes.
class LevelMeasurement {
 public:
  LevelMeasurement(int node, Index longest, Communicator& world, const Clock& clock)
      : world_(world),
        clock_(clock),
        node_(node),
        longest_(longest),
        source_(fmt::format("measured: {} ranks, {} per node", world.size(), node)) {}

  /// Measures inside nodes. It assumes one link per rank, because it measures what all pairs reach at once.
  Level inside() const {
    const Line at{world_.rank() / node_, world_.rank() % node_, node_, 1};
    Level level = begin("node", at);
    const auto& points = level.verbs.at({Verb::exchange, 2}).points;
    level.ranks = {static_cast<double>(node_), source_};
    level.latency = {points.front().second, source_};
    level.bandwidth = {points.back().first / points.back().second, source_};
    level.links = {1, "assumed: one per rank"};
    return level;
  }

  /// Measures between nodes: what one rank of a node reaches by itself, and how many ranks can reach as much at once.
  Level between() const {
    const Line at{world_.rank() % node_, world_.rank() / node_, world_.size() / node_, node_};
    Level level = begin("network", at);
    const auto& points = level.verbs.at({Verb::exchange, 2}).points;
    const int other = at.line == 0 ? at.partner(world_.rank()) : -1;
    const auto alone = [&](double size) { return time_exchange(world_, clock_, other, static_cast<Index>(size)); };
    const auto [bytes, at_once] = points.back();
    const double one = alone(bytes);
    level.latency = {alone(points.front().first), source_ + ", one rank per node at a time"};
    level.bandwidth = {bytes / one, level.latency.source};
    level.links = {std::clamp(std::round(node_ * one / at_once), 1.0, static_cast<double>(node_)),
                   source_ + ", all ranks of a node at once, compared with one"};
    if (node_ > 1) add_collectives(level, {0, world_.rank(), world_.size(), 1}, {world_.size()}, node_);
    return level;
  }

 private:
  Curve curve(const std::string& what, const std::function<double(Index bytes)>& seconds) const {
    Curve curve{{}, fmt::format("{}, {}", source_, what)};
    for (Index bytes = 8; bytes <= longest_; bytes *= 4)
      curve.points.emplace_back(static_cast<double>(bytes), seconds(bytes));
    return curve;
  }

  /// Starts a level without latency, bandwidth and links.
  Level begin(const std::string& name, const Line& at) const {
    Level level;
    level.name = name;
    level.fan_out = {1, "assumed"};
    level.overlap = {world_.asynchronous() ? 1.0 : 0.0, "reported by the transport"};
    const int other = at.partner(world_.rank());
    level.verbs[{Verb::exchange, 2}] =
        curve("pairwise exchange", [&](Index bytes) { return time_exchange(world_, clock_, other, bytes); });
    add_collectives(level, at, sizes_up_to(at.places));
    return level;
  }

  /// Measures collectives in groups of these sizes along each line, in all lines at once. Of a group, `inside` ranks
  /// share a unit of the level below.
  void add_collectives(Level& level, const Line& at, const std::vector<int>& sizes, int inside = 1) const {
    for (const int size : sizes) {
      const auto group = world_.split(at.line * at.places + at.place / size, at.place);
      const bool whole = group->size() == size;
      for (const Verb verb : {Verb::all_reduce, Verb::all_gather, Verb::reduce_scatter})
        level.verbs[{verb, size, inside}] = curve(fmt::format("groups of {}", size), [&](Index bytes) {
          return time_collective(world_, clock_, *group, whole, verb, bytes);
        });
    }
  }

  Communicator& world_;
  const Clock& clock_;
  int node_;
  Index longest_;
  std::string source_;
};

/// The levels for a world of one rank, which has no other rank to send to.
std::vector<Level> assumed_levels() {
  std::vector<Level> levels = default_machine().levels;
  for (Level& level : levels)
    for (Constant* constant : {&level.latency, &level.bandwidth})
      constant->source += "; one rank alone measures no network";
  return levels;
}

/// A layer to be timed: its forward time against its operations, or against the bytes that it moves.
struct Probe {
  KernelKind kind;
  double flops = 0, bytes = 0;
  Model model;
};

std::vector<Probe> probes() {
  std::vector<Probe> all;
  for (const Index c : {4, 16, 64, 256}) {
    Probe probe{KernelKind::conv, 0, 0, Model("probe")};
    auto t = probe.model.input("in", {.channels = c, .spatial = {28, 28}});
    t = probe.model.conv("probe", t, {.filters = c, .kernel = 3, .padding = 1});
    probe.model.softmax_cross_entropy("loss", probe.model.linear("out", t, {.features = 2}));
    probe.flops = 2.0 * 9 * static_cast<double>(c * c) * 28 * 28 * 4;
    all.push_back(std::move(probe));
  }
  for (const Index c : {32, 128, 512, 2048}) {
    Probe probe{KernelKind::product, 0, 0, Model("probe")};
    auto t = probe.model.input("in", {.channels = c, .spatial = {}});
    t = probe.model.linear("probe", t, {.features = c});
    probe.model.softmax_cross_entropy("loss", probe.model.linear("out", t, {.features = 2}));
    probe.flops = 2.0 * static_cast<double>(c * c) * 4;
    all.push_back(std::move(probe));
  }
  for (const Index c : {1, 1024}) {
    Probe probe{KernelKind::others, 0, 0, Model("probe")};
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
  const LayerPlan& layer = plan.layers[static_cast<std::size_t>(probe.model.find("probe"))];
  return times.find(local_work(layer, 0, plan.workload), timed_loop(plan, 0))->forward;
}

void measure_kernels(Machine& machine, const MeasureOptions& options, Communicator& world) {
  const std::string source =
      fmt::format("measured: {} ranks at once, {}", world.size(), backend_of_times(options, DType::f32));
  std::map<KernelKind, std::vector<std::pair<double, double>>> rates;
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
    machine.efficiency[kind] = {{points, source}};
  }
  machine.efficiency[KernelKind::others] = {{{{1, 1}}, "assumed: other kernels are limited by memory"}};
}

}  // namespace

std::vector<Level> measure_levels(int node, Index longest, Communicator& world, const std::function<double()>& clock) {
  if (world.size() == 1) return assumed_levels();
  const LevelMeasurement measurement(node, longest, world, clock);
  std::vector<Level> levels;
  if (node > 1) levels.push_back(measurement.inside());
  if (node < world.size()) levels.push_back(measurement.between());
  levels.back().ranks = {};
  return levels;
}

Machine measure_machine(const MeasureOptions& options, Communicator& world) {
  Machine machine;
  machine.name = place_of_times(options);
  const int node = ranks_a_node(world);
  const auto pages = static_cast<double>(sysconf(_SC_PHYS_PAGES)), page = static_cast<double>(sysconf(_SC_PAGESIZE));
  machine.memory = {std::floor(pages * page / node), "reported by the system, divided by the node's ranks"};
  measure_kernels(machine, options, world);
  machine.levels = measure_levels(node, longest_message, world);
  return machine;
}

}  // namespace partita
