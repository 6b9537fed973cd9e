#include "src/train/measure/measure_machine.hpp"

#include "partita/base/philox.hpp"
#include "src/system/host.hpp"
#include "src/train/measure/kernel_rates.hpp"
#include "src/train/measure/summaries.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace partita {

namespace {

using Clock = std::function<double()>;

/// The ranks of a measurement, and the memory between which they send.
class Place {
 public:
  Place(Communicator& world, Device& device, Communicator& between, const Clock& clock)
      : world_(world),
        between_(between),
        allocator_(std::make_shared<Allocator>(device, 0, device.make_stream(Priority::normal))),
        clock_(clock) {}

  Communicator& world() const { return world_; }      ///< for numbers of the CPU
  Communicator& between() const { return between_; }  ///< for tensors
  Stream stream() const { return allocator_->stream(); }
  /// Returns the time when everything that was enqueued is done.
  double time() const {
    allocator_->device().finish(stream());
    return clock_();
  }
  Tensor tensor(Index elements) const {
    return {DType::f32, "F", Box(Shape{{'F', elements}}), allocator_, MemoryClass::workspace};
  }

 private:
  Communicator &world_, &between_;
  std::shared_ptr<Allocator> allocator_;
  const Clock& clock_;
};

/// Seconds per call on the slowest rank: the median of 9 rounds of repeated calls, about 20 ms in all.
double time_calls(const Place& place, const std::function<void()>& call) {
  Communicator& world = place.world();
  call();
  double begin = place.time();
  call();
  const double once = largest(place.time() - begin, world);
  const int calls = std::clamp(static_cast<int>(0.002 / std::max(once, 1e-7)), 1, 500);
  std::vector<double> rounds;
  for (int round = 0; round < 9; ++round) {
    largest(0, world);
    begin = place.time();
    for (int i = 0; i < calls; ++i) call();
    rounds.push_back(largest((place.time() - begin) / calls, world));
  }
  return median(rounds);
}

/// Times an exchange: both ranks of each pair send to each other at once, from tensors, as halos do. Ranks without a
/// partner (-1) wait.
double time_exchange(const Place& place, int other, Index bytes) {
  const Tensor out = place.tensor(std::max<Index>(bytes / 4, 1)), in = place.tensor(out.volume());
  const std::vector<Transfer> peer{{other, out.box()}};
  return time_calls(place, [&] {
    if (other >= 0) place.between().exchange_boxes({out, peer, in, peer, false}, place.stream()).wait(place.stream());
  });
}

/// The memory that collective calls of a measurement work on. Small buffers are reused and stay in the caches, like
/// freshly computed statistics. Large ones walk through more memory than the caches hold, like gradients after the
/// backward pass has moved on.
class Elements {
 public:
  Elements(const Place& place, Index count)
      : count_(count), all_(place.tensor(count >= large ? walked / count * count + count : count)) {}
  std::byte* next() {
    at_ = at_ + count_ < all_.volume() ? at_ + count_ : 0;
    return all_.data() + at_ * size_of(DType::f32);
  }

 private:
  static constexpr Index large = (Index{1} << 20) / 4, walked = (Index{64} << 20) / 4;
  Index count_, at_ = 0;
  Tensor all_;
};

/// Times a collective in all complete groups at once. Ranks of an incomplete group wait.
double time_collective(const Place& place, Communicator& group, bool whole, Verb verb, Index bytes) {
  const Index elements = std::max<Index>(bytes / 4, group.size());
  Elements all(place, elements), part(place, verb == Verb::all_reduce ? 1 : elements);
  const Stream stream = place.stream();
  std::vector<Index> counts(static_cast<std::size_t>(group.size()), elements / group.size());
  counts[0] += elements % group.size();
  const auto start = [&] {
    if (verb == Verb::all_reduce) return group.all_reduce(all.next(), elements, DType::f32, ReduceOp::sum, stream);
    if (verb == Verb::all_gather) return group.all_gather(part.next(), all.next(), counts, DType::f32, stream);
    return group.reduce_scatter(all.next(), part.next(), counts, DType::f32, stream);
  };
  return time_calls(place, [&] {
    if (whole) start().wait(stream);
  });
}

/// Returns the number of ranks per node if every node holds equally many consecutive ranks, else 1.
int ranks_a_node(Communicator& world) {
  const std::vector<double> hashes = gather_numbers(world, static_cast<double>(hash_text(host_name()) >> 12U));
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
  LevelMeasurement(int node, Index longest, const Place& place)
      : world_(place.world()),
        place_(place),
        node_(node),
        longest_(longest),
        source_(fmt::format("measured: {} ranks, {} per node", world_.size(), node)) {}

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
    const auto alone = [&](double size) { return time_exchange(place_, other, static_cast<Index>(size)); };
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
    level.overlap = {place_.between().asynchronous() ? 1.0 : 0.0, "reported by the transport"};
    const int other = at.partner(world_.rank());
    level.verbs[{Verb::exchange, 2}] =
        curve("pairwise exchange", [&](Index bytes) { return time_exchange(place_, other, bytes); });
    add_collectives(level, at, sizes_up_to(at.places));
    return level;
  }

  /// Measures collectives in groups of these sizes along each line, in all lines at once. Of a group, `inside` ranks
  /// share a unit of the level below.
  void add_collectives(Level& level, const Line& at, const std::vector<int>& sizes, int inside = 1) const {
    for (const int size : sizes) {
      const auto group = place_.between().split(at.line * at.places + at.place / size, at.place);
      const bool whole = group->size() == size;
      for (const Verb verb : {Verb::all_reduce, Verb::all_gather, Verb::reduce_scatter})
        level.verbs[{verb, size, inside}] = curve(fmt::format("groups of {}", size), [&](Index bytes) {
          return time_collective(place_, *group, whole, verb, bytes);
        });
    }
  }

  Communicator& world_;
  const Place& place_;
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

std::vector<Level> measure_levels(int node, Index longest, const Place& place) {
  if (place.world().size() == 1) return assumed_levels();
  const LevelMeasurement measurement(node, longest, place);
  std::vector<Level> levels;
  if (node > 1) levels.push_back(measurement.inside());
  if (node < place.world().size()) levels.push_back(measurement.between());
  levels.back().ranks = {};
  return levels;
}

}  // namespace

std::vector<Level> measure_levels(int node, Index longest, Communicator& world, const std::function<double()>& clock) {
  return measure_levels(node, longest, Place(world, host_device(), world, clock));
}

std::vector<Level> measure_levels(int node, Index longest, Communicator& world, const Processor& on,
                                  const std::function<double()>& clock) {
  return measure_levels(node, longest, Place(world, on.device, *on.between, clock));
}

Machine measure_machine(const MeasureOptions& options, Communicator& world) {
  Machine machine;
  machine.name = place_of_times(options);
  const int node = ranks_a_node(world);
  measure_kernels(machine, options, world);
  if (options.device) {
    machine.memory = {static_cast<double>(options.device->memory()), "reported by the device, divided by its ranks"};
    machine.levels = measure_levels(node, longest_message, world, options.device->processor(DType::f32));
  } else {
    const auto pages = static_cast<double>(sysconf(_SC_PHYS_PAGES)), page = static_cast<double>(sysconf(_SC_PAGESIZE));
    machine.memory = {std::floor(pages * page / node), "reported by the system, divided by the node's ranks"};
    machine.levels = measure_levels(node, longest_message, world);
  }
  return machine;
}

}  // namespace partita
