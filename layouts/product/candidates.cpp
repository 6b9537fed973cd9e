#include "layouts/product/candidates.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace partita {

namespace {

/// True if `target` shards C as `made` does and then further, over axes of the pending sum only.
bool scatters(const Layout& made, const Layout& target) {
  AxisSet further = 0;
  for (int d = 0; d < made.shape().dims(); ++d) {
    const auto &coarse = made.axes(d), &fine = target.axes(d);
    if (coarse.size() > fine.size() || !std::equal(coarse.begin(), coarse.end(), fine.begin())) return false;
    for (std::size_t i = coarse.size(); i < fine.size(); ++i) further |= AxisSet{1} << fine[i];
  }
  return further != 0 && (further & ~made.partial()) == 0;
}

std::size_t index_number(char index) { return index == 'm' ? 0 : index == 'n' ? 1 : 2; }

}  // namespace

AxisSet cutting(const Roles& roles, char index) {
  AxisSet set = 0;
  for (std::size_t axis = 0; axis < roles.size(); ++axis)
    if (roles[axis].index == index) set |= AxisSet{1} << axis;
  return set;
}

std::vector<const ProductOperand*> ProductWays::given() const {
  return request_.b_follows ? std::vector{&a_, &c_} : std::vector{&a_, &b_, &c_};
}

/// Returns the axes that cut a dimension of an index, in the order in which an operand nests them.
AxisList ProductWays::axes_of(char index, int dim, const Roles& roles) const {
  AxisList axes;
  for (std::size_t axis = 0; axis < roles.size(); ++axis)
    if (roles[axis] == Role{index, dim}) axes.push_back(static_cast<int>(axis));
  if (axes.size() < 2) return axes;
  for (const auto* operand : given()) {
    const auto [from, to] = dims_of(*operand, index);
    if (from == to) continue;
    const auto& nested = operand->layout.axes(from + dim);
    const auto at = [&](int axis) { return std::find(nested.begin(), nested.end(), axis); };
    if (std::any_of(axes.begin(), axes.end(), [&](int axis) { return at(axis) == nested.end(); })) continue;
    std::sort(axes.begin(), axes.end(), [&](int x, int y) { return at(x) < at(y); });
    break;
  }
  return axes;
}

Layout ProductWays::used(const ProductOperand& operand, const Roles& roles) const {
  Layout layout(operand.layout.shape(), operand.layout.grid());
  for (const char index : operand.indices) {
    const auto [from, to] = dims_of(operand, index);
    for (int d = from; d < to; ++d)
      if (const AxisList axes = axes_of(index, d - from, roles); !axes.empty())
        layout = std::move(layout).with(d, axes);
  }
  return layout;
}

ProductWays::Sum ProductWays::sum(const Roles& roles) const {
  const AxisSet contracted = cutting(roles, 'k');
  const Layout& target = c_.layout;
  const Layout pending = target.with_partial(contracted & ~target.sharding());
  Sum sum;
  sum.made = used(c_, roles).with_partial(contracted);
  sum.left = request_.completes ? target.with_partial(contracted & target.partial()) : pending;
  sum.in_slabs = scatters(sum.made, target);
  sum.redistribute_c = plan_redistribution(sum.in_slabs ? pending : sum.made, sum.left);
  return sum;
}

double ProductWays::flops(const Roles& roles) const {
  const Grid& grid = a_.layout.grid();
  std::array<std::array<Index, max_dims>, 3> parts;  // number of blocks of each dimension of m, n and k
  for (auto& each : parts) each.fill(1);
  for (std::size_t axis = 0; axis < roles.size(); ++axis)
    if (const auto [index, dim] = roles[axis]; index != 0)
      parts[index_number(index)][dim] *= grid.extent(static_cast<int>(axis));
  double flops = 2;
  for (const char index : std::string_view("mnk")) {
    const ProductOperand& operand = index == 'n' ? b_ : a_;
    const auto [from, to] = dims_of(operand, index);
    for (int d = from; d < to; ++d) {
      const Index parts_of_dim = parts[index_number(index)][d - from];
      flops *=
          static_cast<double>((operand.layout.shape().extent(d) + parts_of_dim - 1) / parts_of_dim);  // largest block
    }
  }
  return flops;
}

void ProductWays::exchange(const Layout& have, const Layout& need, Moved& moved) const {
  const Index words = most_missing(have, need);
  if (words == 0) return;
  AxisSet from_others = 0;
  for (int d = 0; d < need.shape().dims(); ++d) from_others |= have.sharding(d) & ~need.sharding(d);
  moved.words += static_cast<double>(words);
  moved.messages += std::max(have.grid().group_size(from_others) - 1, 1);
}

ProductWays::Moved ProductWays::gathered(const ProductOperand& operand, const Roles& roles) const {
  Moved moved;
  exchange(operand.layout, used(operand, roles), moved);
  return moved;
}

ProductWays::Moved ProductWays::summed(const Roles& roles) const {
  const Grid& grid = c_.layout.grid();
  const Sum sum = this->sum(roles);
  Moved moved;
  moved.in_slabs = sum.in_slabs;
  if (sum.in_slabs) exchange(c_.layout, sum.made, moved);
  for (const auto& step : sum.redistribute_c) {
    moved.words += wire_elements(step, 0);
    moved.messages += grid.group_size(step.axes) - 1;
  }
  const int later = grid.group_size(sum.left.partial() & ~c_.layout.partial());
  moved.words += wire_of_all_reduce(static_cast<double>(sum.left.owned(0).volume()), later);
  moved.messages += 2 * std::log2(later);
  return moved;
}

/// Encodes for each axis which of the operand's dimensions it cuts, or that it cuts the index that is summed, or
/// neither.
ProductWays::Cut ProductWays::cut_of(const ProductOperand& operand, const Roles& roles) {
  constexpr int bits = 4, neither = 0, summed = 1, dimensions = 2;
  static_assert(max_axes * bits <= 64 && dimensions + max_dims <= 1 << bits);
  Cut cut = 0;
  for (const Role& role : roles) {
    const auto [from, to] = dims_of(operand, role.index);
    const int part = from < to ? dimensions + from + role.dim : role.index == 'k' ? summed : neither;
    cut = cut << bits | static_cast<Cut>(part);
  }
  return cut;
}

std::optional<ProductWay> ProductWays::price(std::optional<Algorithm> algorithm, const Roles& roles, double most) {
  const auto once = [&](Known& known, const ProductOperand& operand, const auto& find) {
    const auto [found, fresh] = known.try_emplace(cut_of(operand, roles));
    if (fresh) found->second = find();
    return found->second;
  };
  Alternative cost{.algorithm = {}, .flops = flops(roles)};
  const auto too_much = [&](const Moved& moved) {
    cost.words += moved.words;
    cost.messages += moved.messages;
    return cost.total() > most;
  };
  if (too_much({})) return std::nullopt;
  if (too_much(once(of_a_, a_, [&] { return gathered(a_, roles); }))) return std::nullopt;
  if (!request_.b_follows && too_much(once(of_b_, b_, [&] { return gathered(b_, roles); }))) return std::nullopt;
  const Moved of_c = summed(roles);  // not cached, as hardly any two ways cut C in the same way
  if (too_much(of_c)) return std::nullopt;
  cost.algorithm = algorithm;
  return ProductWay{roles, std::move(cost), of_c.in_slabs};
}

}  // namespace partita
