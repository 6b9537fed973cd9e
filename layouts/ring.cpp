#include "partita/layouts/ring.hpp"

#include <algorithm>

namespace partita {

namespace {

constexpr int places = 2;  // the dimension L

/// The bytes of what travels in one message, for each row of keys and values.
using BytesOfRow = std::array<std::vector<Index>, RingStep::results + 1>;

/// Lists the steps of one rank of a ring.
class Steps {
 public:
  using Part = RingStep::Part;

  Steps(const Ring& ring, std::vector<int> members, int me)
      : ring_(ring), members_(std::move(members)), p_(static_cast<int>(members_.size())), me_(me) {
    at(0).keys = at(0).computed = block(me_);
    for (int t = 1; t <= far(); ++t) {
      if (!ring_.causal || t <= me_) visit(t);
      if (!ring_.balanced) continue;
      if (me_ < t) help(t);
      if (me_ + t >= p_) get_help(t);
    }
    // Others meet its own block. The last of them returns its gradient.
    const int last = farthest(me_);
    if (last > 0) at(0).moves[Part::block].send = {member(me_ + 1), block(me_)};
    if (last > 0) at(last + 1).moves[Part::own_sum].receive = {member(me_ + last), block(me_)};
  }

  std::vector<RingStep> steps;

 private:
  RingStep& at(int t) {
    if (t >= std::ssize(steps)) steps.resize(static_cast<std::size_t>(t) + 1);
    return steps[static_cast<std::size_t>(t)];
  }
  int member(int number) const { return members_[static_cast<std::size_t>((number + p_) % p_)]; }
  Box block(int number) const { return ring_.blocks.owned(member(number)); }
  /// By how many ranks blocks travel at most.
  int far() const { return ring_.balanced ? p_ / 2 : p_ - 1; }
  /// By how many ranks the block of a rank travels.
  int farthest(int number) const { return ring_.causal ? std::min(far(), p_ - 1 - number) : far(); }
  /// The queries of a rank that meet a block in step t: those that its helper computes, or those that it computes.
  Box share(int number, int t, bool helper) const {
    Box box = block(number);
    if (ring_.balanced && 2 * t == p_)
      (helper ? box[places].lo : box[places].hi) = box[places].hi - box.extent(places) / 2;
    return box;
  }

  /// A block visits in step t. It goes on to the next rank, and its gradient follows it or goes home.
  void visit(int t) {
    const int owner = (me_ - t + p_) % p_;
    const Box visitor = block(owner);
    const bool goes_on = t < farthest(owner);
    at(t).keys = visitor;
    at(t).computed = share(me_, t, false);
    at(t - 1).moves[Part::block].receive = {member(me_ - 1), visitor};
    if (goes_on) at(t).moves[Part::block].send = {member(me_ + 1), visitor};
    if (t > 1) at(t).moves[Part::sum].receive = {member(me_ - 1), visitor};
    at(t + 1).moves[goes_on ? Part::sum : Part::own_sum].send = {member(goes_on ? me_ + 1 : owner), visitor};
  }

  void help(int t) {
    const int later = me_ - t + p_;
    const Box part = share(later, t, true);
    if (part.empty()) return;
    at(t).keys = block(me_);
    at(t).computed = part;
    at(t - 1).moves[Part::queries].receive = at(t + 1).moves[Part::results].send = {member(later), part};
  }

  void get_help(int t) {
    const Box part = share(me_, t, true);
    if (part.empty()) return;
    at(t - 1).moves[Part::queries].send = at(t + 1).moves[Part::results].receive = {member(me_ + t - p_), part};
  }

  const Ring& ring_;
  std::vector<int> members_;
  int p_, me_;
};

/// The bytes of what goes to where it is computed, and of what comes from there.
BytesOfRow bytes_of_row(const Ring& ring, bool back, Index element, Index sum) {
  BytesOfRow bytes;
  const Index queries = ring.queries * element, heads = ring.heads * sum;
  bytes[RingStep::block] = {ring.row * element};
  bytes[RingStep::queries] = {queries};
  bytes[RingStep::results] = {ring.queries * sum};
  if (back) {
    bytes[RingStep::sum] = bytes[RingStep::own_sum] = {ring.row * sum};
    bytes[RingStep::queries] = {queries, queries, queries, heads};  // with y, dy and logs of sums
  } else {
    bytes[RingStep::results].push_back(heads);
  }
  return bytes;
}

RingTraffic traffic_of(const std::vector<RingStep>& steps, const BytesOfRow& bytes, Index row,
                       const std::vector<RingStep::Part>& parts) {
  RingTraffic traffic;
  int sends = 0, receives = 0;
  for (const RingStep& step : steps) {
    bool sent = false, received = false;
    for (const RingStep::Part part : parts)
      for (const Index of_row : bytes[part]) {
        const auto& [send, receive] = step.moves[part];
        if (send) traffic_with(traffic.peers, send->peer).sent += {1, send->box.volume() / row * of_row};
        if (receive) traffic_with(traffic.peers, receive->peer).received += {1, receive->box.volume() / row * of_row};
        sent |= send.has_value();
        received |= receive.has_value();
      }
    sends += sent ? 1 : 0;
    receives += received ? 1 : 0;
  }
  traffic.hops = std::max(sends, receives);
  return traffic;
}

}  // namespace

// Blocks are nested in the order of the axes of L, which need not be the order of ranks.
std::vector<int> Ring::members(int rank) const {
  std::vector<std::pair<Index, int>> found;
  for (const int each : blocks.grid().group(rank, axes()))
    if (const Box box = blocks.owned(each); !box.empty()) found.emplace_back(box[places].lo, each);
  std::sort(found.begin(), found.end());
  std::vector<int> members;
  for (const auto& [lo, each] : found) members.push_back(each);
  return members;
}

int Ring::last(int rank) const {
  const auto all = members(rank);
  return all.empty() ? rank : all.back();
}

std::vector<RingStep> Ring::steps(int rank) const {
  const std::vector<int> all = members(rank);
  const auto found = std::find(all.begin(), all.end(), rank);
  if (found == all.end()) {
    std::vector<RingStep> alone(1);
    alone[0].keys = alone[0].computed = blocks.owned(rank);
    return alone;
  }
  return Steps(*this, all, static_cast<int>(found - all.begin())).steps;
}

double Ring::work(int rank) const {
  const auto own = static_cast<double>(blocks.owned(rank).extent(places));
  if (own == 0) return 1;
  double pairs = 0;
  const double in_own = causal ? own * (own + 1) / 2 : own * own;
  for (const auto all = steps(rank); const RingStep& step : all)
    if (step.keys)
      pairs +=
          &step == &all[0] ? in_own : static_cast<double>(step.computed.extent(places) * step.keys->extent(places));
  return pairs / in_own;
}

RingTraffic Ring::traffic(int rank, bool back, Index element, Index sum) const {
  return traffic_of(steps(rank), bytes_of_row(*this, back, element, sum), row, {RingStep::block, RingStep::queries});
}

RingTraffic Ring::result_traffic(int rank, bool back, Index sum) const {
  return traffic_of(steps(rank), bytes_of_row(*this, back, 0, sum), row,
                    {RingStep::sum, RingStep::own_sum, RingStep::results});
}

// As AttentionKernel allocates. The own block and the own queries are parts of tensors that the rank holds anyway.
Index Ring::workspace(int rank, bool back, Index element, Index sum, bool packs) const {
  const auto steps = this->steps(rank);
  const BytesOfRow bytes = bytes_of_row(*this, back, element, sum);
  const auto size = [&](const std::optional<Transfer>& of, RingStep::Part part) {
    Index total = 0;
    for (const Index of_row : bytes[part]) total += of ? of->box.volume() / row * of_row : 0;
    return total;
  };
  // Queries, keys and values lie beside one another in a row. Other tensors have queries alone.
  const auto packed = [&](const std::optional<Transfer>& of, RingStep::Part part) -> Index {
    if (!packs || !of || of->box.volume() <= row) return 0;
    const Box& own = *steps[0].keys;
    const bool is_run = own.extent(0) == 1 || of->box[places] == own[places];
    return part == RingStep::queries && !is_run ? size(of, part) : of->box.volume() / row * bytes[part][0];
  };
  Index most = 0;
  for (std::size_t t = 0; t < steps.size(); ++t) {
    const auto& moves = steps[t].moves;
    Index now = packed(moves[RingStep::queries].send, RingStep::queries);
    if (t == 0) now += packed(moves[RingStep::block].send, RingStep::block);
    for (const auto part : {RingStep::block, RingStep::queries}) {
      now += size(moves[part].receive, part);
      if (t > 0) now += size(steps[t - 1].moves[part].receive, part);
    }
    for (const auto part : {RingStep::sum, RingStep::own_sum, RingStep::results}) {
      now += size(moves[part].send, part) + size(moves[part].receive, part);
      if (t + 1 < steps.size()) now += size(steps[t + 1].moves[part].send, part);
    }
    most = std::max(most, now);
  }
  return most;
}

bool adds_results(const std::vector<RingStep>& steps) {
  for (std::size_t t = 1; t < steps.size(); ++t)
    if (steps[t].moves[RingStep::results].receive || (steps[t].keys && !(*steps[t].keys == *steps[0].keys)))
      return true;
  return false;
}

}  // namespace partita
