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

/// The slabs in which an operand travels. They cut dimension `cut`; if it is -1, the operand travels as a whole.
struct Slabs {
  int cut;
  std::vector<Interval> slabs;
  Index element_size;

  /// Returns the messages and bytes of a box that travels in them.
  Traffic traffic(const Box& box, const InPlace& in_place) const {
    if (cut < 0) return in_place.has({}) ? Traffic{} : Traffic{1, box.volume() * element_size};
    Traffic sum;
    const Index row = box.volume() / box.extent(cut) * element_size;
    for (const Interval slab : slabs)
      if (const Interval part = intersect(box[cut], slab); !part.empty() && !in_place.has(slab))
        sum += {1, part.extent() * row};
    return sum;
  }
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
  std::vector<PeerTraffic> peers;
  const auto add = [&](int peer, Traffic PeerTraffic::*side, Traffic traffic) {
    if (traffic.messages > 0) traffic_with(peers, peer).*side += traffic;
  };
  for (const auto& [operand, used] : {std::pair(&a, &a_used), std::pair(&b, &b_used)}) {
    const Slabs all{cut_dim(*operand), slabs(*operand), element_size};
    const TransferPlan whole = plan_transfer(operand->layout, *used, rank);
    const AxisSet deciding = InPlace::deciding(*this, *operand, *used);
    std::map<int, InPlace> decided;  // by the first of the ranks that decide together
    const auto in_place = [&, &each = *operand, &use = *used](int receiver) -> const InPlace& {
      const int first = representative_rank(use.grid(), receiver, deciding);
      return decided.try_emplace(first, *this, each, use, first).first->second;
    };
    for (const auto& [peer, box] : whole.sends) add(peer, &PeerTraffic::sent, all.traffic(box, in_place(peer)));
    for (const auto& [peer, box] : whole.recvs) add(peer, &PeerTraffic::received, all.traffic(box, in_place(rank)));
  }
  if (!sums_slabs) return peers;
  const Slabs all{cut_dim(c), slabs(c), element_size};
  const TransferPlan whole = plan_transfer(c.layout, c_made, rank);
  for (const auto& [peer, box] : whole.recvs) add(peer, &PeerTraffic::sent, all.traffic(box, InPlace()));
  for (const auto& [peer, box] : whole.sends) add(peer, &PeerTraffic::received, all.traffic(box, InPlace()));
  return peers;
}

}  // namespace partita
