#include "partita/base/error.hpp"
#include "product_dims.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace partita {

namespace {

/// What cuts each dimension of m, n and k.
struct Cut {
  std::array<std::vector<AxisList>, 3> axes;
  AxisSet of(char index) const {
    AxisSet set = 0;
    for (const auto& dim : axes[place(index)])
      for (const int axis : dim) set |= AxisSet{1} << axis;
    return set;
  }
  static std::size_t place(char index) { return std::string_view("mnk").find(index); }
};

/// Where an axis of the grid could cut: one dimension of one index.
struct Role {
  char index;
  int dim;  // of the index
  bool operator==(const Role&) const = default;
};

/// True if a rank may need more of the operand than it has.
bool moves(const ProductOperand& operand, const Layout& used) {
  for (int d = 0; d < used.shape().dims(); ++d) {
    const auto &have = operand.layout.axes(d), &need = used.axes(d);
    if (have.size() > need.size() || !std::equal(have.begin(), have.end(), need.begin())) return true;
  }
  return false;
}

class ProductChooser {
 public:
  ProductChooser(const ProductOperand& a, const ProductOperand& b, const ProductOperand& c,
                 const ProductRequest& request)
      : a_(a), b_(b), c_(c), request_(request), grid_(a.layout.grid()) {
    check();
    for (int axis = 0; axis < grid_.axes(); ++axis) roles_.push_back(roles_of(axis));
  }

  ProductPlan choose() const {
    std::vector<ProductPlan> ways;  // the best of each kind
    std::vector<Role> roles(static_cast<std::size_t>(grid_.axes()), Role{0, 0});
    enumerate(0, roles, ways);
    if (ways.empty()) refuse();
    std::stable_sort(ways.begin(), ways.end(), cheaper);
    ProductPlan best = ways.front();
    for (std::size_t i = 1; i < ways.size(); ++i) best.alternatives.push_back(ways[i].alternatives[0]);
    cut_panels(best);
    return best;
  }

 private:
  void check() const {
    for (const auto* operand : {&a_, &b_, &c_}) {
      const Shape& shape = operand->layout.shape();
      require(operand->indices.size() == 2 && operand->layout.grid() == grid_, "two indices, one grid");
      if (shape.dims() < 2 || shape.name(0) == 'C')
        fail("{}: a product's operand has two dimensions or more, of which C is not the first", print());
      if (operand != &c_ && operand->layout.partial() != 0)
        fail("{}: a product takes no pending sum; redistribute it first", print());
    }
    require(c_.indices == "mn", "C is m n");
    for (const char index : std::string_view("mnk"))
      if (places(index == 'n' ? b_ : a_, index) != places(index == 'k' ? b_ : c_, index))
        fail("{}: the operands differ in {}", print(), index);
    const auto& names = product_algorithms();
    if (request_.algorithm != "auto" && std::find(names.begin(), names.end(), request_.algorithm) == names.end())
      fail("a product has no algorithm \"{}\"{}; it has {}", request_.algorithm,
           did_you_mean(request_.algorithm, names), quoted_list(names));
  }

  static std::vector<Index> extents(const ProductOperand& operand, char index) {
    std::vector<Index> all;
    const auto [from, to] = dims_of(operand, index);
    for (int d = from; d < to; ++d) all.push_back(operand.layout.shape().extent(d));
    return all;
  }

  /// The extents of an index, with names where it has several dimensions: then their order matters.
  static Shape places(const ProductOperand& operand, char index) {
    Shape all;
    const auto [from, to] = dims_of(operand, index);
    const Shape& shape = operand.layout.shape();
    for (int d = from; d < to; ++d) all.push_back({to - from > 1 ? shape.name(d) : 'C', shape.extent(d)});
    return all;
  }

  static Index extent_of(const ProductOperand& operand, char index) {
    Index all = 1;
    for (const Index extent : extents(operand, index)) all *= extent;
    return all;
  }

  std::string print() const {
    const auto one = [](char name, const ProductOperand& operand) {
      return fmt::format("{}[{}] {} \"{}\"", name, operand.indices, operand.layout.shape().print(),
                         operand.layout.print());
    };
    return fmt::format("{}, {}, {}", one('A', a_), one('B', b_), one('C', c_));
  }

  std::vector<const ProductOperand*> given() const {
    return request_.b_follows ? std::vector{&a_, &c_} : std::vector{&a_, &b_, &c_};
  }

  /// Where the axis cuts an operand, it could cut the product; where it cuts any, it could cut any other index too.
  std::vector<Role> roles_of(int axis) const {
    std::vector<Role> roles;
    const auto add = [&](Role role) {
      if (std::find(roles.begin(), roles.end(), role) == roles.end()) roles.push_back(role);
    };
    for (const auto* operand : given())
      for (const char index : operand->indices) {
        const auto [from, to] = dims_of(*operand, index);
        for (int d = from; d < to; ++d)
          if ((operand->layout.sharding(d) >> axis & 1U) != 0) add({index, d - from});
      }
    const bool used = !roles.empty() || (c_.layout.partial() >> axis & 1U) != 0;
    if (used)
      for (const char index : std::string_view("mnk")) add({index, 0});
    add({0, 0});  // every rank along it does the same
    return roles;
  }

  void enumerate(int axis, std::vector<Role>& roles, std::vector<ProductPlan>& ways) const {
    if (axis == grid_.axes()) {
      const Cut cut = cut_of(roles);
      if (fits(cut) && could_be_best(cut, ways)) keep(plan(cut), ways);
      return;
    }
    for (const Role& role : roles_[static_cast<std::size_t>(axis)]) {
      roles[static_cast<std::size_t>(axis)] = role;
      enumerate(axis + 1, roles, ways);
    }
  }

  /// False if computing alone takes longer than the best of its kind.
  bool could_be_best(const Cut& cut, const std::vector<ProductPlan>& ways) const {
    const std::string algorithm = name(cut);
    const auto same =
        std::find_if(ways.begin(), ways.end(), [&](const ProductPlan& way) { return way.algorithm == algorithm; });
    if (same == ways.end()) return true;
    double flops = 2;
    for (const char index : std::string_view("mnk")) {
      const ProductOperand& operand = index == 'n' ? b_ : a_;
      const auto [from, to] = dims_of(operand, index);
      for (int d = from; d < to; ++d) {
        Interval range{0, operand.layout.shape().extent(d)};
        for (const int axis : cut.axes[Cut::place(index)][static_cast<std::size_t>(d - from)])
          range = balanced_block(range, grid_.extent(axis), 0);
        flops *= static_cast<double>(range.extent());
      }
    }
    return Alternative{algorithm, flops}.total() <= same->alternatives[0].total();
  }

  static bool cheaper(const ProductPlan& x, const ProductPlan& y) {
    const double p = x.alternatives[0].total(), q = y.alternatives[0].total();
    return p != q ? p < q : !x.sums_slabs && y.sums_slabs;  // a sum costs more than a copy
  }

  static void keep(ProductPlan way, std::vector<ProductPlan>& ways) {
    const auto same = std::find_if(ways.begin(), ways.end(),
                                   [&](const ProductPlan& other) { return other.algorithm == way.algorithm; });
    if (same == ways.end())
      ways.push_back(std::move(way));
    else if (cheaper(way, *same))
      *same = std::move(way);
  }

  Cut cut_of(const std::vector<Role>& roles) const {
    Cut cut;
    for (const char index : std::string_view("mnk"))
      cut.axes[Cut::place(index)].resize(extents(index == 'n' ? b_ : a_, index).size());
    for (int axis = 0; axis < grid_.axes(); ++axis) {
      const Role& role = roles[static_cast<std::size_t>(axis)];
      if (role.index != 0) cut.axes[Cut::place(role.index)][static_cast<std::size_t>(role.dim)].push_back(axis);
    }
    for (const char index : std::string_view("mnk"))
      for (std::size_t dim = 0; dim < cut.axes[Cut::place(index)].size(); ++dim)
        nest(cut.axes[Cut::place(index)][dim], index, static_cast<int>(dim));
    return cut;
  }

  /// Puts the axes of one dimension in the order in which an operand nests them.
  void nest(AxisList& axes, char index, int dim) const {
    if (axes.size() < 2) return;
    for (const auto* operand : given()) {
      const auto [from, to] = dims_of(*operand, index);
      if (from == to) continue;
      const auto& nested = operand->layout.axes(from + dim);
      const auto at = [&](int axis) { return std::find(nested.begin(), nested.end(), axis); };
      if (std::any_of(axes.begin(), axes.end(), [&](int axis) { return at(axis) == nested.end(); })) continue;
      std::sort(axes.begin(), axes.end(), [&](int x, int y) { return at(x) < at(y); });
      return;
    }
  }

  bool fits(const Cut& cut) const {
    if (request_.pending && (cut.of('k') & ~c_.layout.sharding()) != *request_.pending) return false;
    if (request_.b_follows && (placed(b_, cut).sharding() & request_.b_whole) != 0) return false;
    if (request_.algorithm == "auto" || grid_.size() == 1) return true;
    const bool m = cut.of('m') != 0, n = cut.of('n') != 0, k = cut.of('k') != 0;
    if (request_.algorithm == "summa-a") return !n && (m || k);
    if (request_.algorithm == "summa-b") return !m && (n || k);
    if (request_.algorithm == "summa-c") return !k && (m || n);
    if (request_.algorithm == "dot") return !m && !n && k;
    return m && n && k;
  }

  std::string name(const Cut& cut) const {
    if (request_.algorithm != "auto") return request_.algorithm;
    const bool m = cut.of('m') != 0, n = cut.of('n') != 0, k = cut.of('k') != 0;
    if (!k) return m || n ? "summa-c" : "";
    if (m && n) return "2.5d";
    return m ? "summa-a" : n ? "summa-b" : "dot";
  }

  static Layout placed(const ProductOperand& operand, const Cut& cut) {
    Layout layout(operand.layout.shape(), operand.layout.grid());
    for (const char index : operand.indices) {
      const auto [from, to] = dims_of(operand, index);
      for (int d = from; d < to; ++d)
        layout = layout.with(d, cut.axes[Cut::place(index)][static_cast<std::size_t>(d - from)]);
    }
    return layout;
  }

  /// True if `target` cuts C as `made` does and then further, over axes of the sum.
  static bool scatters(const Layout& made, const Layout& target) {
    AxisSet further = 0;
    for (int d = 0; d < made.shape().dims(); ++d) {
      const auto &coarse = made.axes(d), &fine = target.axes(d);
      if (coarse.size() > fine.size() || !std::equal(coarse.begin(), coarse.end(), fine.begin())) return false;
      for (std::size_t i = coarse.size(); i < fine.size(); ++i) further |= AxisSet{1} << fine[i];
    }
    return further != 0 && (further & ~made.partial()) == 0;
  }

  ProductPlan plan(const Cut& cut) const {
    ProductPlan way;
    way.algorithm = name(cut);
    way.a = a_;
    way.b = b_;
    way.c = c_;
    way.a_used = placed(a_, cut);
    way.b_used = placed(b_, cut);
    if (request_.b_follows) way.b.layout = way.b_used;
    const AxisSet contracted = cut.of('k');
    way.c_made = placed(c_, cut).with_partial(contracted);
    const Layout& target = c_.layout;
    const Layout pending = target.with_partial(contracted & ~target.sharding());
    way.c.layout = request_.completes ? target.with_partial(contracted & target.partial()) : pending;
    way.sums_slabs = scatters(way.c_made, target);
    way.finish = plan_redistribution(way.sums_slabs ? pending : way.c_made, way.c.layout);
    way.along = panel_index(way, cut);
    way.alternatives = {cost(way, cut)};
    return way;
  }

  /// Panels of what is summed; else of what is gathered, along the index that its owners cut.
  char panel_index(const ProductPlan& way, const Cut& cut) const {
    const bool a = moves(way.a, way.a_used), b = moves(way.b, way.b_used);
    if (way.sums_slabs) {
      if (cut.of('m') != 0 && cut.of('n') != 0) return 'k';
      if (a != b) return b ? 'n' : 'm';
      return way.c_made.owned(0).extent(0) * 2 > way.c_made.owned(0).volume() ? 'm' : 'n';
    }
    if (b && !a && finer(way.b, way.b_used, 'n')) return 'n';
    if (a && !b && finer(way.a, way.a_used, 'm')) return 'm';
    return 'k';
  }

  /// True if the operand lies cut over axes in the dimensions of `index` that do not cut them where it is used.
  static bool finer(const ProductOperand& operand, const Layout& used, char index) {
    const auto [from, to] = dims_of(operand, index);
    for (int d = from; d < to; ++d)
      if ((operand.layout.sharding(d) & ~used.sharding(d)) != 0) return true;
    return false;
  }

  Alternative cost(const ProductPlan& way, const Cut& cut) const {
    const Box a = way.a_used.owned(0), c = way.c_made.owned(0);
    Index k = 1;
    const auto [from, to] = dims_of(way.a, 'k');
    for (int d = from; d < to; ++d) k *= a.extent(d);
    Alternative cost{way.algorithm, 2.0 * static_cast<double>(c.volume()) * static_cast<double>(k)};
    const auto exchange = [&](const Layout& have, const Layout& need) {
      const Index words = most_missing(have, need);
      if (words == 0) return;
      AxisSet from_others = 0;
      for (int d = 0; d < need.shape().dims(); ++d) from_others |= have.sharding(d) & ~need.sharding(d);
      cost.words += static_cast<double>(words);
      cost.messages += std::max(grid_.group_size(from_others) - 1, 1);
    };
    exchange(way.a.layout, way.a_used);
    exchange(way.b.layout, way.b_used);
    if (way.sums_slabs) exchange(c_.layout, way.c_made);
    for (const auto& step : way.finish) {
      cost.words += wire_elements(step, 0);
      cost.messages += grid_.group_size(step.axes) - 1;
    }
    const int later = grid_.group_size(cut.of('k') & way.c.layout.partial() & ~c_.layout.partial());
    cost.words += wire_of_all_reduce(static_cast<double>(way.c.layout.owned(0).volume()), later);
    cost.messages += 2 * std::log2(later);
    return cost;
  }

  /// Slabs end where owners' blocks do, as far as that leaves slabs that are worth a product each, and there are as many panels
  /// as keep the links busy. A sum over a part of k reads B once for each, in short pieces where B is transposed: with few rows
  /// of C that costs more than it hides (half the rate was measured with 8 rows, 0.8 with 64), and k is left whole.
  void cut_panels(ProductPlan& way) const {
    constexpr Index most_slabs = 16, most_panels = 8;
    Index extent = 0, beside = 1,
          words = 0;  // of the dimension that is cut, of the index's other ones; that travel in panels
    std::vector<Index> ends;
    const auto add = [&](const ProductOperand& operand, const Layout& used, bool travels) {
      const int d = way.cut_dim(operand);
      if (d < 0) return;
      extent = operand.layout.shape().extent(d);
      beside = extent_of(operand, way.along) / std::max(extent, Index{1});
      if (!travels) return;
      words += most_missing(operand.layout, used);
      for (const int rank : grid_.group(0, operand.layout.sharding(d)))
        ends.push_back(operand.layout.owned(rank)[d].hi);
    };
    add(way.a, way.a_used, moves(way.a, way.a_used));
    add(way.b, way.b_used, moves(way.b, way.b_used));
    add(way.c, way.c_made, way.sums_slabs);
    if (way.along == 'k' && (request_.whole_k || has_few_rows(way))) ends.clear();
    const Index narrowest = std::max(request_.narrowest_slab / std::max(beside, Index{1}), Index{1});
    const std::vector<Interval> slabs = coarsened(ends, extent, std::max(narrowest, extent / most_slabs));
    Index panels = ends.empty() ? 1 : static_cast<Index>(static_cast<double>(words) / request_.panel_words);
    for (const Interval slab : slabs) panels = std::min(panels, slab.extent() / narrowest);
    panels = std::clamp(panels, Index{1}, most_panels);
    for (int p = 0; p < panels; ++p) {
      way.panels.emplace_back();
      for (const Interval slab : slabs) way.panels.back().push_back(balanced_block(slab, static_cast<int>(panels), p));
    }
  }

  bool has_few_rows(const ProductPlan& way) const {
    const Box c = way.c_made.owned(0);
    const Index rows = std::min(c.extent(0), c.volume() / std::max(c.extent(0), Index{1}));
    return rows < request_.narrowest_slab * (way.b.indices == "kn" ? 2 : 8);
  }

  static std::vector<Interval> coarsened(std::vector<Index> ends, Index extent, Index least) {
    std::sort(ends.begin(), ends.end());
    std::vector<Interval> slabs;
    Index lo = 0;
    for (const Index end : ends)
      if (end - lo >= least && extent - end >= least) {
        slabs.push_back({lo, end});
        lo = end;
      }
    if (extent > lo) slabs.push_back({lo, extent});
    return slabs;
  }

  [[noreturn]] void refuse() const {
    std::string needs =
        request_.algorithm == "2.5d" ? "three axes that the layouts cut" : "an axis that the layouts cut";
    if (request_.pending.value_or(0) != 0)
      needs += fmt::format("; its k is cut over {}, over which C is summed later", grid_.print(*request_.pending));
    fail("{}: the grid \"{}\" cannot run \"{}\", which needs {}", print(), grid_.print(), request_.algorithm, needs);
  }

  const ProductOperand &a_, &b_, &c_;
  const ProductRequest& request_;
  const Grid& grid_;
  std::vector<std::vector<Role>> roles_;
};

}  // namespace

ProductPlan plan_product(const ProductOperand& a, const ProductOperand& b, const ProductOperand& c,
                         const ProductRequest& request) {
  return ProductChooser(a, b, c, request).choose();
}

}  // namespace partita
