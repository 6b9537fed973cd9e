#include "layouts/product/dims.hpp"
#include "partita/base/error.hpp"

#include <algorithm>
#include <map>

namespace partita {

namespace {

/// Returns, of these dimensions, the slowest in memory whose extent is above 1. A slab of it is a block of the matrix.
int slowest(const Shape& shape, std::pair<int, int> dims) {
  for (int d = dims.first; d < dims.second; ++d)
    if (shape.name(d) != 'C' && shape.extent(d) > 1) return d;
  for (int d = dims.first; d < dims.second; ++d)
    if (shape.name(d) == 'C') return d;
  return dims.first;
}

}  // namespace

const std::vector<Algorithm>& product_algorithms() {
  using enum Algorithm;
  static const std::vector<Algorithm> all{summa_a, summa_b, summa_c, dot, two_and_a_half_d};
  return all;
}

ProductPlan ProductPlan::on(const Grid& grid) const {
  ProductPlan plan = *this;
  for (Layout* layout : {&plan.a.layout, &plan.b.layout, &plan.c.layout, &plan.a_used, &plan.b_used, &plan.c_made})
    *layout = layout->on(grid);
  for (auto& step : plan.redistribute_c) step = {step.verb, step.axes, step.from.on(grid), step.to.on(grid)};
  return plan;
}

int ProductPlan::cut_dim(const ProductOperand& operand) const {
  const auto dims = dims_of(operand, along);
  return dims.first == dims.second ? -1 : slowest(operand.layout.shape(), dims);
}

Box ProductPlan::part(const ProductOperand& operand, const Layout& layout, int rank, Interval slab) const {
  Box box = layout.owned(rank);
  if (const int d = cut_dim(operand); d >= 0) box[d] = intersect(box[d], slab);
  return box;
}

Box ProductPlan::gathered(const ProductOperand& operand, const Layout& used, int rank, Interval slab) const {
  const auto stays = [&](int r) {
    const Box needed = part(operand, used, r, slab);
    return needed.empty() || operand.layout.owned(r).contains(needed);
  };
  // Replicas of C must agree bit for bit. Therefore either all of them multiply their own elements in place, or all of
  // them multiply gathered copies. (InPlace of product_traffic.cpp decides this for all slabs.)
  bool all = stays(rank);
  if (all && c_made.grid().group_size(c_made.replicated()) > 1)
    for (const int r : c_made.grid().group(rank, c_made.replicated())) all = all && stays(r);
  return all ? Box(operand.layout.shape().dims()) : part(operand, used, rank, slab);
}

std::vector<Interval> ProductPlan::slabs(const ProductOperand& operand) const {
  const int d = cut_dim(operand);
  if (d < 0) return {{0, 0}};
  std::vector<Interval> all;
  for (const auto& panel : panels) all.insert(all.end(), panel.begin(), panel.end());
  return all;
}

bool has_rows(std::string_view names, const Box& whole, const Box& part) {
  const auto order = memory_order(names);
  require(order[0] == 0, "the rows must be the slowest dimension in memory");
  bool inside = false;  // after the slowest dimension of the columns
  for (int i = 1; i < part.dims(); ++i) {
    const int d = order[i];
    if (inside && !(part[d] == whole[d])) return false;
    inside = inside || whole.extent(d) > 1;
  }
  return true;
}

namespace {

/// Replays what one rank holds in workspace while a product runs, as matmul/product.cpp does.
class ProductReplay {
 public:
  ProductReplay(const ProductPlan& plan, int rank, bool packs)
      : plan_(plan), rank_(rank), packs_(packs), makes_slabs_(plan.sums_slabs && plan.cut_dim(plan.c) >= 0) {}

  /// Returns the largest number of elements.
  Index run() {
    for (const auto* operand : {&plan_.a, &plan_.b})
      if (plan_.cut_dim(*operand) < 0) start(*operand, {});
    const auto& steps = plan_.redistribute_c;
    if (!steps.empty()) take(volume(steps.front().from));
    if (plan_.sums_slabs && !makes_slabs_) take(volume(plan_.c_made));
    for (std::size_t p = 0; p < plan_.panels.size(); ++p) {
      if (p == 0) start(plan_.panels[0]);
      if (p + 1 < plan_.panels.size()) start(plan_.panels[p + 1]);
      multiply(plan_.panels[p]);
    }
    for (const auto* operand : {&plan_.a, &plan_.b})
      if (plan_.cut_dim(*operand) < 0) arrive(*operand, {});
    if (plan_.sums_slabs && !makes_slabs_) {
      packed_ = packs_of_sum({});
      take(packed_);
    }
    free(packed_);  // the last sums are complete
    redistribute();
    return most_;
  }

 private:
  void take(Index elements) { most_ = std::max(most_, now_ += elements); }
  void free(Index elements) { now_ -= elements; }
  Index volume(const Layout& layout) const { return layout.elements(rank_); }
  const Layout& used(const ProductOperand& operand) const { return &operand == &plan_.a ? plan_.a_used : plan_.b_used; }
  Index gathered(const ProductOperand& operand, Interval slab) const {
    return plan_.gathered(operand, used(operand), rank_, slab).volume();
  }

  /// Holds what arrives for the slabs of a panel.
  void start(const ProductPlan::Panel& panel) {
    for (const Interval slab : panel)
      for (const auto* operand : {&plan_.a, &plan_.b})
        if (plan_.cut_dim(*operand) >= 0) start(*operand, slab);
  }

  /// Holds what arrives for a slab, and the buffers of its messages until it has arrived.
  void start(const ProductOperand& operand, Interval slab) {
    take(gathered(operand, slab));
    if (!packs_) return;
    const auto& own = operand.layout;
    const PackedElements packed =
        packed_elements(plan_.gather(operand, used(operand), rank_, slab), own.shape().names(), own.owned(rank_),
                        plan_.gathered(operand, used(operand), rank_, slab));
    under_way_[{&operand, slab.lo}] = packed.sent + packed.received;
    take(packed.sent + packed.received);
  }
  void arrive(const ProductOperand& operand, Interval slab) {
    if (const auto found = under_way_.find({&operand, slab.lo}); found != under_way_.end()) {
      free(found->second);
      under_way_.erase(found);
    }
  }
  Index packs_of_sum(Interval slab) const {
    if (!packs_) return 0;
    const Box made = makes_slabs_ ? plan_.part(plan_.c, plan_.c_made, rank_, slab) : plan_.c_made.owned(rank_);
    const PackedElements packed = packed_by_adjoint(plan_.sum(rank_, slab), plan_.c.layout.shape().names(), made);
    return packed.sent + packed.received;
  }

  /// Returns the elements of a copy that is made because the rows of an operand are not contiguous.
  Index copied(const ProductOperand& operand, Interval slab) const {
    if (plan_.cut_dim(operand) < 0) slab = {};
    const Box part = plan_.part(operand, used(operand), rank_, slab);
    if (part.empty()) return 0;
    const Box from = plan_.gathered(operand, used(operand), rank_, slab);
    const Box& whole = from.empty() ? operand.layout.owned(rank_) : from;
    return has_rows(operand.layout.shape().names(), whole, part) ? 0 : part.volume();
  }
  bool here(Interval slab) const { return is_here(plan_.a, slab) && is_here(plan_.b, slab); }
  bool is_here(const ProductOperand& operand, Interval slab) const {
    return plan_.gathered(operand, used(operand), rank_, plan_.cut_dim(operand) < 0 ? Interval{} : slab).empty();
  }

  void multiply(const ProductPlan::Panel& panel) {
    Index made = 0;
    for (const bool first : {true, false})
      for (const Interval slab : panel) {
        if (here(slab) != first) continue;
        Index copies = 0;
        for (const auto* operand : {&plan_.a, &plan_.b}) {
          if (!is_here(*operand, slab)) arrive(*operand, plan_.cut_dim(*operand) < 0 ? Interval{} : slab);
          take(copied(*operand, slab));
          copies += copied(*operand, slab);
        }
        const Index slab_of_c = makes_slabs_ ? plan_.part(plan_.c, plan_.c_made, rank_, slab).volume() : 0;
        take(slab_of_c);
        made += slab_of_c;
        free(copies);
      }
    for (const Interval slab : panel)
      for (const auto* operand : {&plan_.a, &plan_.b})
        if (plan_.cut_dim(*operand) >= 0) {
          arrive(*operand, slab);
          free(gathered(*operand, slab));
        }
    Index packed = 0;
    if (makes_slabs_)
      for (const Interval slab : panel) {
        take(packs_of_sum(slab));
        packed += packs_of_sum(slab);
      }
    free(made_ + packed_);  // the sums of the panel before are complete
    made_ = made;
    packed_ = packed;
  }

  void redistribute() {
    Index before = 0;
    for (const auto& step : plan_.redistribute_c) {
      take(volume(step.to));
      Index packed = packed_blocks(step, rank_);
      if (packs_ && step.verb == Verb::exchange) {
        const PackedElements each = packed_elements(step, rank_);
        packed = each.sent + each.received;
      }
      take(packed);
      free(packed + before);
      before = volume(step.to);
    }
  }

  const ProductPlan& plan_;
  int rank_;
  bool packs_, makes_slabs_;
  std::map<std::pair<const ProductOperand*, Index>, Index> under_way_;  // elements in buffers, by operand and slab
  Index now_ = 0, most_ = 0;
  Index made_ = 0, packed_ = 0;  // elements of the parts of C whose sums are under way, and in the buffers of these
};

}  // namespace

Index ProductPlan::workspace(int rank, bool packs) const { return ProductReplay(*this, rank, packs).run(); }

}  // namespace partita
