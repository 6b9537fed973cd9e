#include "partita/layouts/product/product.hpp"

#include <algorithm>
#include <map>

namespace partita {

namespace {

/// Plans a transfer from owned to needed boxes among the ranks that differ from `rank` along `axes`. Other ranks are
/// not involved.
template <class Needed>
TransferPlan transfer_along(AxisSet axes, const Layout& owner, int rank, Needed&& needed) {
  const Grid& grid = owner.grid();
  const auto ranks = grid.group(rank, axes);
  std::vector<Box> from, to;
  for (const int r : ranks) {
    from.push_back(owner.owned(r));
    to.push_back(needed(r));
  }
  return plan_transfer(ranks, from, to, rank, grid);
}

/// The slabs of an operand that a rank needs not gather, because it uses its own elements in place.
class InPlace {
 public:
  /// No slab.
  InPlace() = default;
  /// As ProductPlan::gathered() decides for one slab.
  InPlace(const ProductPlan& plan, const ProductOperand& operand, const Layout& used, int rank) {
    const int cut = plan.cut_dim(operand);
    any_ = true;
    for (const int r : used.grid().group(rank, deciding(plan, operand, used))) {
      const Box needed = used.owned(r), owned = operand.layout.owned(r);
      if (needed.empty()) continue;
      bool inside = true;  // in the dimensions that slabs do not cut
      for (int d = 0; d < needed.dims(); ++d)
        if (d != cut) inside = inside && intersect(needed[d], owned[d]) == needed[d];
      if (cut < 0) any_ = any_ && inside;
      if (cut >= 0) sides_.push_back({needed[cut], inside ? owned[cut] : Interval{}});
    }
  }

  /// Returns the axes along which ranks decide together: they make the same block of C, and their elements may differ.
  static AxisSet deciding(const ProductPlan& plan, const ProductOperand& operand, const Layout& used) {
    return plan.c_made.replicated() & (operand.layout.sharding() | used.sharding());
  }

  bool has(Interval slab) const {
    return any_ && std::all_of(sides_.begin(), sides_.end(), [&](const Sides& side) {
             const Interval part = intersect(side.needed, slab);
             return part.empty() || intersect(part, side.held) == part;
           });
  }

 private:
  struct Sides {
    Interval needed, held;  // along the dimension that slabs cut
  };
  bool any_ = false;
  std::vector<Sides> sides_;  // of the rank, and of those that make the same block of C
};

/// The slabs in which an operand travels. They cut one dimension, or none: then the operand travels as a whole.
class Slabs {
 public:
  Slabs(const ProductPlan& plan, const ProductOperand& operand, Index element_size)
      : cut_(plan.cut_dim(operand)), slabs_(plan.slabs(operand)), element_size_(element_size) {
    std::sort(slabs_.begin(), slabs_.end(), [](Interval a, Interval b) { return a.lo < b.lo; });
  }

  /// Returns the messages and bytes of a box that travels in them.
  Traffic traffic(const Box& box, const InPlace& in_place) const {
    if (cut_ < 0) return in_place.has({}) ? Traffic{} : Traffic{1, box.volume() * element_size_};
    const Interval cut = box[cut_];
    const Index row = box.volume() / box.extent(cut_) * element_size_;
    Traffic sum;
    const auto first =
        std::partition_point(slabs_.begin(), slabs_.end(), [&](Interval slab) { return slab.hi <= cut.lo; });
    for (auto slab = first; slab != slabs_.end() && slab->lo < cut.hi; ++slab)
      if (const Interval part = intersect(cut, *slab); !part.empty() && !in_place.has(*slab))
        sum += {1, part.extent() * row};
    return sum;
  }

 private:
  int cut_;
  std::vector<Interval> slabs_;  // in ascending order; they do not overlap
  Index element_size_;
};

/// Adds up what a rank sends to each peer and receives from it.
class PeerSums {
 public:
  /// Adds the traffic of each transfer of a list, in which peers ascend.
  template <class TrafficOf>
  void add(const std::vector<Transfer>& list, Traffic PeerTraffic::*side, const TrafficOf& traffic_of) {
    const auto before = std::ssize(parts_);
    for (const auto& transfer : list)
      if (const Traffic traffic = traffic_of(transfer); traffic.messages > 0)
        parts_.emplace_back(PeerTraffic{transfer.peer, {}, {}}).*side = traffic;
    std::inplace_merge(parts_.begin(), parts_.begin() + before, parts_.end(),
                       [](const auto& a, const auto& b) { return a.peer < b.peer; });
  }
  /// Returns one entry per peer, in ascending order.
  std::vector<PeerTraffic> sums() const {
    std::vector<PeerTraffic> peers;
    for (const PeerTraffic& part : parts_) {
      PeerTraffic& sum = traffic_with(peers, part.peer);
      sum.sent += part.sent;
      sum.received += part.received;
    }
    return peers;
  }

 private:
  std::vector<PeerTraffic> parts_;  // peers ascend
};

}  // namespace

TransferPlan ProductPlan::gather(const ProductOperand& operand, const Layout& used, int rank, Interval slab) const {
  return transfer_along(differing(operand.layout, used), operand.layout, rank,
                        [&](int r) { return gathered(operand, used, r, slab); });
}

TransferPlan ProductPlan::sum(int rank, Interval slab) const {
  return transfer_along(differing(c.layout, c_made), c.layout, rank, [&](int r) { return part(c, c_made, r, slab); });
}

// The sender of an element is the same in whatever slab it travels. Therefore one plan of all slabs together is enough.
std::vector<PeerTraffic> ProductPlan::traffic(int rank, Index element_size) const {
  PeerSums peers;
  for (const auto& [operand, used] : {std::pair(&a, &a_used), std::pair(&b, &b_used)}) {
    const Slabs all(*this, *operand, element_size);
    const TransferPlan whole = plan_transfer(operand->layout, *used, rank);
    const AxisSet deciding = InPlace::deciding(*this, *operand, *used);
    std::map<int, InPlace> decided;  // by the first of the ranks that decide together
    const auto in_place = [&, &each = *operand, &use = *used](int receiver) -> const InPlace& {
      const int first = representative_rank(use.grid(), receiver, deciding);
      return decided.try_emplace(first, *this, each, use, first).first->second;
    };
    peers.add(whole.sends, &PeerTraffic::sent, [&](const auto& to) { return all.traffic(to.box, in_place(to.peer)); });
    peers.add(whole.recvs, &PeerTraffic::received,
              [&](const auto& from) { return all.traffic(from.box, in_place(rank)); });
  }
  if (!sums_slabs) return peers.sums();
  const Slabs all(*this, c, element_size);
  const TransferPlan whole = plan_transfer(c.layout, c_made, rank);
  const auto traffic_of = [&](const auto& transfer) { return all.traffic(transfer.box, InPlace()); };
  peers.add(whole.recvs, &PeerTraffic::sent, traffic_of);
  peers.add(whole.sends, &PeerTraffic::received, traffic_of);
  return peers.sums();
}

}  // namespace partita
