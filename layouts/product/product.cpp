#include "layouts/product/dims.hpp"

#include "partita/base/error.hpp"

#include <algorithm>

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
  // them multiply gathered copies.
  bool all = stays(rank);
  if (all && c_made.grid().group_size(c_made.replicated()) > 1)
    for (const int r : c_made.grid().group(rank, c_made.replicated())) all = all && stays(r);
  return all ? Box(operand.layout.shape().dims()) : part(operand, used, rank, slab);
}

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

}  // namespace

TransferPlan ProductPlan::gather(const ProductOperand& operand, const Layout& used, int rank, Interval slab) const {
  return transfer_along(differing(operand.layout, used), operand.layout, rank,
                        [&](int r) { return gathered(operand, used, r, slab); });
}

TransferPlan ProductPlan::sum(int rank, Interval slab) const {
  return transfer_along(differing(c.layout, c_made), c.layout, rank, [&](int r) { return part(c, c_made, r, slab); });
}

std::vector<Interval> ProductPlan::slabs(const ProductOperand& operand) const {
  const int d = cut_dim(operand);
  if (d < 0) return {{0, 0}};
  std::vector<Interval> all;
  for (const auto& panel : panels) all.insert(all.end(), panel.begin(), panel.end());
  return all;
}

Traffic ProductPlan::traffic(int rank, Index element_size) const {
  Traffic sent;
  const auto add = [&](const std::vector<Transfer>& transfers) {
    for (const auto& transfer : transfers) sent += {1, transfer.box.volume() * element_size};
  };
  for (const Interval slab : slabs(a)) add(gather(a, a_used, rank, slab).sends);
  for (const Interval slab : slabs(b)) add(gather(b, b_used, rank, slab).sends);
  if (sums_slabs)
    for (const Interval slab : slabs(c)) add(sum(rank, slab).recvs);
  return sent;
}

// This must agree with matmul/product.cpp, which holds two panels at a time.
Index ProductPlan::workspace(int rank) const {
  const bool in_place = !sums_slabs && redistribute_c.empty();
  const auto of = [&](const ProductOperand& operand, const Layout& used, const Panel& panel) {
    Index elements = 0;
    for (const Interval slab : panel) elements += gathered(operand, used, rank, slab).volume();
    return elements;
  };
  Index always = 0, most = 0;
  if (cut_dim(a) < 0) always += of(a, a_used, {{0, 0}});
  if (cut_dim(b) < 0) always += of(b, b_used, {{0, 0}});
  const bool makes_slabs = sums_slabs && cut_dim(c) >= 0;
  if (sums_slabs && !redistribute_c.empty()) always += redistribute_c.front().from.owned(rank).volume();
  if (!in_place && !makes_slabs) always += c_made.owned(rank).volume();
  for (std::size_t p = 0; p < panels.size(); ++p) {
    Index now = 0;
    for (std::size_t i = p; i < std::min(p + 2, panels.size()); ++i) {
      if (cut_dim(a) >= 0) now += of(a, a_used, panels[i]);
      if (cut_dim(b) >= 0) now += of(b, b_used, panels[i]);
    }
    if (makes_slabs)
      for (std::size_t i = p == 0 ? 0 : p - 1; i <= p; ++i)
        for (const Interval slab : panels[i]) now += part(c, c_made, rank, slab).volume();
    most = std::max(most, now);
  }
  return always + most;
}

}  // namespace partita
