#include "layouts/product/candidates.hpp"
#include "partita/base/error.hpp"

#include <algorithm>
#include <limits>

namespace partita {

namespace {

/// True if a rank may need elements of the operand that it does not hold.
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
      : a_(a), b_(b), c_(c), request_(request), grid_(a.layout.grid()), prices_(a, b, c, request) {
    check();
    for (int axis = 0; axis < grid_.axes(); ++axis) choices_.push_back(roles_of(axis));
  }

  ProductPlan choose() && {
    Roles roles(static_cast<std::size_t>(grid_.axes()));
    enumerate(0, roles, {});
    if (ways_.empty()) refuse();
    std::stable_sort(ways_.begin(), ways_.end(), cheaper);
    ProductPlan best = plan(ways_.front());
    for (const ProductWay& way : ways_) best.alternatives.push_back(way.cost);
    cut_panels(best);
    return best;
  }

 private:
  void check() const {
    for (const auto* operand : {&a_, &b_, &c_}) {
      const Shape& shape = operand->layout.shape();
      require(operand->indices.size() == 2 && operand->layout.grid() == grid_,
              "an operand must have two indices, and all operands the same grid");
      if (shape.dims() < 2 || shape.name(0) == 'C')
        fail("{}: an operand of a product needs at least two dimensions, and C must not be its first one", print());
      if (operand != &c_ && operand->layout.partial() != 0)
        fail("{}: an operand of a product must not be a pending sum; redistribute it first", print());
    }
    require(c_.indices == "mn", "the indices of C must be m n");
    for (const char index : std::string_view("mnk"))
      if (places(index == 'n' ? b_ : a_, index) != places(index == 'k' ? b_ : c_, index))
        fail("{}: the operands differ in {}", print(), index);
    const auto& all = product_algorithms();
    if (request_.algorithm != Algorithm::automatic &&
        std::find(all.begin(), all.end(), request_.algorithm) == all.end())
      fail("\"{}\" is no algorithm of a product; there are {}", partita::name(request_.algorithm),
           quoted_list(names_of(all)));
  }

  static std::vector<Index> extents(const ProductOperand& operand, char index) {
    std::vector<Index> all;
    const auto [from, to] = dims_of(operand, index);
    for (int d = from; d < to; ++d) all.push_back(operand.layout.shape().extent(d));
    return all;
  }

  /// Returns the extents of an index. They carry dimension names if there are several, since then their order matters.
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

  /// Returns the roles that an axis may take. An axis may keep the dimension that it shards in an operand. If it shards
  /// an operand, or if C is partial over it, it may also shard the first dimension of any index. It may always
  /// replicate.
  Roles roles_of(int axis) const {
    Roles roles;
    const auto add = [&](Role role) {
      if (std::find(roles.begin(), roles.end(), role) == roles.end()) roles.push_back(role);
    };
    for (const auto* operand : prices_.given())
      for (const char index : operand->indices) {
        const auto [from, to] = dims_of(*operand, index);
        for (int d = from; d < to; ++d)
          if ((operand->layout.sharding(d) >> axis & 1U) != 0) add({index, d - from});
      }
    const bool used = !roles.empty() || (c_.layout.partial() >> axis & 1U) != 0;
    if (used)
      for (const char index : std::string_view("mnk")) add({index, 0});
    add({0, 0});  // all ranks along the axis do the same work
    return roles;
  }

  /// The axes that cut each index, as returned by cutting().
  struct Cuts {
    AxisSet m = 0, n = 0, k = 0;

    Cuts with(char index, int axis) const {
      const AxisSet more = AxisSet{1} << axis;
      return {index == 'm' ? m | more : m, index == 'n' ? n | more : n, index == 'k' ? k | more : k};
    }
  };

  void enumerate(int axis, Roles& roles, const Cuts& cuts) {
    if (axis == grid_.axes()) return consider(roles, cuts);
    for (const Role& role : choices_[axis]) {
      roles[axis] = role;
      enumerate(axis + 1, roles, cuts.with(role.index, axis));
    }
  }

  void consider(const Roles& roles, const Cuts& cuts) {
    const auto [m, n, k] = cuts;
    if (request_.pending && (k & ~c_.layout.sharding()) != *request_.pending) return;
    if (request_.b_follows && ((n | k) & request_.b_whole) != 0) return;
    if (!is_asked(m != 0, n != 0, k != 0)) return;
    const std::optional<Algorithm> algorithm = algorithm_of(m != 0, n != 0, k != 0);
    const auto same = std::find_if(ways_.begin(), ways_.end(),
                                   [&](const ProductWay& way) { return way.cost.algorithm == algorithm; });
    constexpr double any = std::numeric_limits<double>::infinity();
    auto way = prices_.price(algorithm, roles, same == ways_.end() ? any : same->cost.total());
    if (!way) return;
    if (same == ways_.end())
      ways_.push_back(std::move(*way));
    else if (cheaper(*way, *same))
      *same = std::move(*way);
  }

  static bool cheaper(const ProductWay& x, const ProductWay& y) {
    const double p = x.cost.total(), q = y.cost.total();
    return p != q ? p < q : !x.sums_slabs && y.sums_slabs;  // at equal cost: adding slabs costs more than a copy
  }

  /// True if a way that cuts these indices can run the algorithm that is asked for.
  bool is_asked(bool m, bool n, bool k) const {
    if (request_.algorithm == Algorithm::automatic || grid_.size() == 1) return true;
    if (request_.algorithm == Algorithm::summa_a) return !n && (m || k);
    if (request_.algorithm == Algorithm::summa_b) return !m && (n || k);
    if (request_.algorithm == Algorithm::summa_c) return !k && (m || n);
    if (request_.algorithm == Algorithm::dot) return !m && !n && k;
    return m && n && k;
  }

  std::optional<Algorithm> algorithm_of(bool m, bool n, bool k) const {
    if (request_.algorithm != Algorithm::automatic) return request_.algorithm;
    if (!m && !n && !k) return std::nullopt;
    if (!k) return Algorithm::summa_c;
    if (m && n) return Algorithm::two_and_a_half_d;
    return m ? Algorithm::summa_a : n ? Algorithm::summa_b : Algorithm::dot;
  }

  ProductPlan plan(const ProductWay& way) const {
    ProductPlan plan;
    plan.algorithm = way.cost.algorithm;
    plan.a = a_;
    plan.b = b_;
    plan.c = c_;
    plan.a_used = prices_.used(a_, way.roles);
    plan.b_used = prices_.used(b_, way.roles);
    if (request_.b_follows) plan.b.layout = plan.b_used;
    ProductWays::Sum sum = prices_.sum(way.roles);
    plan.c_made = sum.made;
    plan.c.layout = sum.left;
    plan.sums_slabs = sum.in_slabs;
    plan.redistribute_c = std::move(sum.redistribute_c);
    plan.along = panel_index(plan, way.roles);
    return plan;
  }

  /// Chooses the index that panels cut. If C is summed in slabs this is an index of C, unless axes cut both of its
  /// indices; then it is k. Otherwise it is the index that the owners of the gathered operand cut, or k.
  char panel_index(const ProductPlan& way, const Roles& roles) const {
    const bool a = moves(way.a, way.a_used), b = moves(way.b, way.b_used);
    if (way.sums_slabs) {
      if (cutting(roles, 'm') != 0 && cutting(roles, 'n') != 0) return 'k';
      if (a != b) return b ? 'n' : 'm';
      return way.c_made.owned(0).extent(0) * 2 > way.c_made.owned(0).volume() ? 'm' : 'n';
    }
    if (b && !a && finer(way.b, way.b_used, 'n')) return 'n';
    if (a && !b && finer(way.a, way.a_used, 'm')) return 'm';
    return 'k';
  }

  /// True if the operand's own layout cuts the dimensions of `index` over axes that do not cut them in `used`.
  static bool finer(const ProductOperand& operand, const Layout& used, char index) {
    const auto [from, to] = dims_of(operand, index);
    for (int d = from; d < to; ++d)
      if ((operand.layout.sharding(d) & ~used.sharding(d)) != 0) return true;
    return false;
  }

  /// Chooses the slabs and panels. Slabs end where owners' blocks end, as far as every slab stays large enough for a
  /// product of its own. There are as many panels as keep the links busy. If panels cut k, each product reads a part of
  /// B, in short pieces if B is transposed. With few rows of C this costs more than overlap hides (measured: half the
  /// rate with 8 rows, 0.8 of it with 64); k is then not cut.
  void cut_panels(ProductPlan& way) const {
    constexpr Index most_slabs = 16, most_panels = 8;
    Index extent = 0,  // of the dimension that panels cut
        beside = 1,    // product of the other extents of the same index
        words = 0;     // elements that travel in panels
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
    std::string needs = request_.algorithm == Algorithm::two_and_a_half_d ? "three axes that the layouts use"
                                                                          : "an axis that the layouts use";
    if (request_.pending.value_or(0) != 0)
      needs += fmt::format("; k must be cut over {}, over which C is summed later", grid_.print(*request_.pending));
    fail("{}: the grid \"{}\" cannot run \"{}\", which needs {}", print(), grid_.print(), name(request_.algorithm),
         needs);
  }

  const ProductOperand &a_, &b_, &c_;
  const ProductRequest& request_;
  const Grid& grid_;
  ProductWays prices_;
  std::vector<Roles> choices_;    // for each axis
  std::vector<ProductWay> ways_;  // the best way of each algorithm
};

}  // namespace

ProductPlan plan_product(const ProductOperand& a, const ProductOperand& b, const ProductOperand& c,
                         const ProductRequest& request) {
  return ProductChooser(a, b, c, request).choose();
}

}  // namespace partita
