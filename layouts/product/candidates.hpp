#pragma once

#include "layouts/product/dims.hpp"

#include <cstdint>
#include <map>
#include <memory_resource>
#include <optional>
#include <string_view>
#include <vector>

namespace partita {

/// What an axis of the grid cuts: one dimension of one of a product's indices m, n and k. With index 0 it cuts nothing,
/// and all ranks along the axis do the same work.
struct Role {
  char index = 0;
  int dim = 0;  ///< number of the dimension among those of the index
  bool operator==(const Role&) const = default;
};

/// One way to cut a product: the role of each axis of the grid.
using Roles = std::vector<Role>;

/// A way to cut a product, with its cost.
struct ProductWay {
  Roles roles;
  Alternative cost;
  bool sums_slabs = false;
};

/// Returns the axes that cut an index.
AxisSet cutting(const Roles& roles, char index);

/// Computes, for each way to cut a product, the layouts of the operands and the cost. What an operand costs depends
/// only on the axes that cut it. It is therefore computed once for all ways that cut the operand in the same way.
/// @pre The operands and the request outlive this object.
class ProductWays {
 public:
  ProductWays(const ProductOperand& a, const ProductOperand& b, const ProductOperand& c, const ProductRequest& request)
      : a_(a), b_(b), c_(c), request_(request) {}

  /// The operands whose layouts are given and not chosen by the planner.
  std::vector<const ProductOperand*> given() const;
  /// Returns the layout in which a rank multiplies A or B, or in which it makes its part of C, without the pending sum.
  Layout used(const ProductOperand& operand, const Roles& roles) const;

  /// How the parts of C are summed.
  struct Sum {
    Layout made;  ///< what the ranks' products make
    Layout left;  ///< the final layout of C
    bool in_slabs = false;
    std::vector<RedistributionStep> redistribute_c;  ///< to `left`, from `made` or from the target of the slabs' sums
  };
  Sum sum(const Roles& roles) const;

  /// Returns the number of operations on the rank that has the most work.
  double flops(const Roles& roles) const;
  /// Returns the way of an algorithm with its cost, or nothing if its total cost exceeds `most`.
  std::optional<ProductWay> price(std::optional<Algorithm> algorithm, const Roles& roles, double most);

 private:
  /// What travels for one operand: elements and messages on the rank that has the most to move.
  struct Moved {
    double words = 0, messages = 0;
    bool in_slabs = false;
  };
  using Cut = std::uint64_t;  // how the axes cut an operand: four bits per axis
  using Known = std::pmr::map<Cut, Moved>;

  AxisList axes_of(char index, int dim, const Roles& roles) const;
  void exchange(const Layout& have, const Layout& need, Moved& moved) const;
  Moved gathered(const ProductOperand& operand, const Roles& roles) const;
  Moved summed(const Roles& roles) const;
  static Cut cut_of(const ProductOperand& operand, const Roles& roles);

  const ProductOperand &a_, &b_, &c_;
  const ProductRequest& request_;
  std::pmr::monotonic_buffer_resource memory_;
  Known of_a_{&memory_}, of_b_{&memory_};
};

}  // namespace partita
