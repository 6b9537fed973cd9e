#include "partita/layouts/ring.hpp"

#include <algorithm>

namespace partita {

namespace {

Index volume(const RingStep& step) { return step.block ? step.block->volume() : 0; }

Index bytes_of_block(const std::vector<RingStep>& steps, std::size_t t, Index element) {
  return volume(steps[t]) * element;
}

}  // namespace

// Blocks are nested in the order of the axes of L, which need not be the order of ranks.
std::vector<int> Ring::members(int rank) const {
  const int l = blocks.shape().find('L');
  std::vector<std::pair<Index, int>> places;
  for (const int each : blocks.grid().group(rank, axes()))
    if (const Box box = blocks.owned(each); !box.empty()) places.emplace_back(box[l].lo, each);
  std::sort(places.begin(), places.end());
  std::vector<int> members;
  for (const auto& [lo, each] : places) members.push_back(each);
  return members;
}

int Ring::last(int rank) const {
  const auto all = members(rank);
  return all.empty() ? rank : all.back();
}

std::vector<RingStep> Ring::steps(int rank) const {
  const std::vector<int> all = members(rank);
  const auto found = std::find(all.begin(), all.end(), rank);
  std::vector<RingStep> steps(1);
  steps[0].block = blocks.owned(rank);
  if (found == all.end() || all.size() == 1) return steps;
  const int p = static_cast<int>(all.size()), me = static_cast<int>(found - all.begin());
  const auto member = [&](int number) { return all[static_cast<std::size_t>((number + p) % p)]; };
  const bool sends = !causal || me + 1 < p;
  const int met = causal ? me + 1 : p;         // blocks
  const int home = causal ? p - me : p;        // the step in which the gradient of the own block comes back
  const int last = causal ? p - 1 : me - 1;    // where it comes from
  const bool returns = !causal || me < p - 1;  // some other rank adds to it
  steps.resize(static_cast<std::size_t>(std::max(met > 1 ? met + 1 : 1, returns ? home + 1 : 1)));
  for (int t = 0; t < static_cast<int>(steps.size()); ++t) {
    RingStep& step = steps[static_cast<std::size_t>(t)];
    if (t < met) step.block = blocks.owned(member(me - t));
    if (t < met && sends && (causal || t + 1 < p)) step.block_to = member(me + 1);
    if (t + 1 < met) step.block_from = member(me - 1);
    // The last rank that met the block of the step before sends its gradient home.
    if (t >= 2 && t <= met) step.sum_to = causal && !sends ? member(me - t + 1) : member(me + 1);
    if (t >= 2 && t < met) step.sum_from = member(me - 1);
    if (returns && t == home) step.own_from = member(last);
  }
  return steps;
}

double Ring::work(int rank) const {
  const Interval own = blocks.owned(rank)[blocks.shape().find('L')];
  if (own.empty()) return 1;
  const auto places = static_cast<double>(own.extent());
  if (!causal) return static_cast<double>(blocks.shape()['L']) / places;
  const double in_own = (places + 1) / 2;  // that a place meets, on average
  return (static_cast<double>(own.lo) + in_own) / in_own;
}

std::vector<PeerTraffic> Ring::traffic(int rank, Index element) const {
  const auto steps = this->steps(rank);
  std::vector<PeerTraffic> peers;
  for (std::size_t t = 0; t < steps.size(); ++t) {
    if (steps[t].block_to) traffic_with(peers, *steps[t].block_to).sent += {1, bytes_of_block(steps, t, element)};
    if (steps[t].block_from)
      traffic_with(peers, *steps[t].block_from).received += {1, bytes_of_block(steps, t + 1, element)};
  }
  return peers;
}

std::vector<PeerTraffic> Ring::gradient_traffic(int rank, Index element) const {
  const auto steps = this->steps(rank);
  std::vector<PeerTraffic> peers;
  for (std::size_t t = 0; t < steps.size(); ++t) {
    if (steps[t].sum_to) traffic_with(peers, *steps[t].sum_to).sent += {1, bytes_of_block(steps, t - 1, element)};
    if (steps[t].sum_from) traffic_with(peers, *steps[t].sum_from).received += {1, bytes_of_block(steps, t, element)};
    if (steps[t].own_from) traffic_with(peers, *steps[t].own_from).received += {1, bytes_of_block(steps, 0, element)};
  }
  return peers;
}

// As AttentionKernel allocates. The own block is a part of a tensor that the rank holds anyway.
Index Ring::workspace(int rank, Index element, Index sum, bool packs) const {
  const auto steps = this->steps(rank);
  const auto block = [&](std::size_t t) { return t > 0 ? bytes_of_block(steps, t, element) : 0; };
  const auto gradient = [&](std::size_t t) { return t > 0 ? bytes_of_block(steps, t, sum) : 0; };
  Index most = 0;
  for (std::size_t t = 0; t < steps.size(); ++t) {
    Index now = block(t);
    if (steps[t].block_from) now += block(t + 1);
    if (t == 0 && packs && steps[0].block_to && volume(steps[0]) > row) now += bytes_of_block(steps, 0, element);
    if (steps[t].sum_to) now += gradient(t - 1);
    if (steps[t].sum_from) now += gradient(t);
    if (steps[t].own_from) now += bytes_of_block(steps, 0, sum);
    most = std::max(most, now + gradient(t));
  }
  return most;
}

}  // namespace partita
