#include "src/train/trainer/replica_check.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <set>

namespace partita {

namespace {

/// A number that differs, almost surely, for other bytes; always if they differ in one word. The four sums do not wait
/// for each other.
std::uint64_t hash_of(const Tensor& tensor) {
  constexpr std::size_t lanes = 4, word = sizeof(std::uint64_t);
  std::array<std::uint64_t, lanes> sums{1, 2, 3, 4};
  const auto add = [&](std::size_t lane, std::uint64_t value) {
    sums[lane] = (sums[lane] ^ value) * 0x9E3779B97F4A7C15;
    sums[lane] ^= sums[lane] >> 32;
  };
  const Tensor here = on_host(tensor, tensor.stream());
  const auto bytes = static_cast<std::size_t>(here.bytes());
  for (std::size_t at = 0; at < bytes; at += lanes * word) {
    std::array<std::uint64_t, lanes> words{};
    std::memcpy(words.data(), here.data() + at, std::min(bytes - at, sizeof words));
    for (std::size_t lane = 0; lane < lanes; ++lane) add(lane, words[lane]);
  }
  for (std::size_t lane = 1; lane < lanes; ++lane) add(0, sums[lane]);
  return sums[0];
}

/// What a rank holds of a weight, or of a state of the optimizer.
struct Part {
  std::string name;
  int number = 0;  // of the weight or state among all those of the plan
  Bucket::Entry of = {};
  AxisSet cut = 0;  // ranks that differ along these axes hold other elements
  Tensor elements;
  std::uint64_t hash = 0;
};

/// What this rank exchanges with another one.
struct Comparison {
  std::vector<std::uint64_t> sent, received;
  std::vector<std::size_t> parts;  // those that were received
};

/// Returns the parts of this rank that are not empty, in the same order on every rank: copies of a table stand where
/// that of the embedding does.
std::vector<Part> parts_of(const Plan& plan, Parameters& parameters) {
  std::vector<Part> parts;
  int number = 0;
  const auto add = [&](const Part& part) {
    if (part.elements && part.elements.volume() > 0) parts.push_back(part);
  };
  for (std::size_t i = 0; i < plan.layers.size(); ++i)
    for (std::size_t w = 0; w < plan.layers[i]->weights.size(); ++w, ++number)
      if (const auto& master = parameters.layer(i).master; !master.empty() && plan.layers[i].holds(w))
        add({fmt::format("{}/{}", plan.layers[i].name, plan.layers[i]->weights[w].name),
             number,
             {static_cast<int>(i), static_cast<int>(w)},
             master[w].layout.sharding(),
             master[w].local});
  const auto states = plan.workload.optimizer.states();
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const Bucket& bucket = plan.buckets[b];
    const auto& flat = parameters.bucket(b);
    for (std::size_t e = 0; e < bucket.entries.size(); ++e) {
      const auto [layer, weight] = bucket.entries[e];
      const LayerPlan& at = plan.layers[layer];
      for (std::size_t k = 0; k < states.size(); ++k, ++number) {
        if (!flat.w) continue;  // it belongs to another stage
        const DistTensor& w = parameters.layer(static_cast<std::size_t>(layer)).master[weight];
        const Interval mine = intersect({flat.offsets[e], flat.offsets[e + 1]}, flat.share);
        if (mine.empty()) continue;
        add({fmt::format("{}/{}.{}", at.name, at->weights[weight].name, states[k]), number, bucket.entries[e],
             w.layout.sharding() | (plan.sharded_optimizer ? bucket.axes : 0),
             Tensor::view(flat.state[k], mine.lo - flat.share.lo, "F", Box(Shape{{'F', mine.extent()}}))});
      }
    }
  }
  const auto place = [&](const Part& part) {
    const LayerPlan& layer = plan.layers[part.of.layer];
    return part.of.weight == 0 && layer.table >= 0 ? layer.table : part.of.layer;
  };
  std::stable_sort(parts.begin(), parts.end(), [&](const Part& a, const Part& b) { return place(a) < place(b); });
  return parts;
}

/// Returns the ranks that hold the same elements, this one included, in order.
std::vector<int> holders(const Plan& plan, const Part& part, int rank) {
  std::set<int> ranks;
  const auto add = [&](int layer) {
    for (int replica = 0; replica < plan.replicas(); ++replica) {
      const Grid& grid = plan.grid_of(layer, replica);
      for (const int r : grid.group(plan.rank_in_stage(rank), grid.all() & ~part.cut))
        ranks.insert(grid.first_rank() + r);
    }
  };
  add(part.of.layer);
  for (const Bucket& bucket : plan.buckets)
    if (bucket.other_copy >= 0 && bucket.entries.front() == part.of) add(plan.buckets[bucket.other_copy].last());
  return {ranks.begin(), ranks.end()};
}

/// Sends each hash to the rank before this one that holds the same elements, and receives those of the rank after it.
/// So each rank compares two neighbors, and equality is transitive. Sets the hashes of `parts`.
std::map<int, Comparison> compare_neighbors(const Plan& plan, std::vector<Part>& parts, Communicator& world) {
  std::map<int, Comparison> by_peer;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto ranks = holders(plan, parts[i], world.rank());
    if (ranks.size() == 1) continue;
    const auto me = static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), world.rank()) - ranks.begin());
    parts[i].hash = hash_of(parts[i].elements);
    by_peer[ranks[(me + ranks.size() - 1) % ranks.size()]].sent.push_back(parts[i].hash);
    by_peer[ranks[(me + 1) % ranks.size()]].parts.push_back(i);
  }
  std::vector<Send> sends;
  std::vector<Recv> recvs;
  for (auto& [peer, comparison] : by_peer) {
    comparison.received.resize(comparison.parts.size());
    if (!comparison.sent.empty()) sends.push_back({peer, std::as_bytes(std::span(comparison.sent))});
    if (!comparison.parts.empty()) recvs.push_back({peer, std::as_writable_bytes(std::span(comparison.received))});
  }
  world.exchange(sends, recvs, {}).wait();
  return by_peer;
}

}  // namespace

void check_replicas(const Plan& plan, Parameters& parameters, Communicator& world, Index steps) {
  auto parts = parts_of(plan, parameters);
  const int none = std::numeric_limits<int>::max();
  int first = none;
  std::string message;
  for (const auto& [peer, comparison] : compare_neighbors(plan, parts, world))
    for (std::size_t i = 0; i < comparison.parts.size(); ++i) {
      const Part& part = parts[comparison.parts[i]];
      if (comparison.received[i] == part.hash || part.number >= first) continue;
      first = part.number;
      message = fmt::format(
          "after {}, ranks {} and {} hold different bits of '{}', although both hold the same part of it; suspect the "
          "memory of a rank, or a sum of the MPI library that depends on the rank; --check-replicas 1 finds the step "
          "in which it begins",
          counted(steps, "step"), std::min(world.rank(), peer), std::max(world.rank(), peer), part.name);
    }
  double earliest = -first;  // there is a largest value, but no smallest
  world.all_reduce(&earliest, 1, DType::f64, ReduceOp::max, {}).wait();
  if (earliest != -none) throw RunFailed(agree(world, earliest == -first ? message : ""));
}

}  // namespace partita
