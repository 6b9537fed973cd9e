#pragma once

#include "layouts/product/dims.hpp"

#include <cstdint>
#include <map>
#include <memory_resource>
#include <optional>
#include <string_view>
#include <vector>

namespace partita {

/// Where an axis of the grid cuts a product: one dimension of one of its indices m, n and k; with index 0 nowhere, every rank along
/// it does the same.
struct Role {
  char index = 0;
  int dim = 0;  ///< of the index
  bool operator==(const Role&) const = default;
};

/// A way to cut a product: the role of each axis of the grid.
using Roles = std::vector<Role>;

/// One of them with its price.
struct ProductWay {
  Roles roles;
  Alternative cost;
  bool sums_slabs = false;
};

/// The axes that cut an index.
AxisSet cutting(const Roles& roles, char index);

/// How the operands of one product lie under each way to cut it, and what that costs. What an operand costs depends on the axes that
/// cut it alone, so it is found out once for all ways that cut it alike. Refers to what it is given.
class ProductWays {
 public:
  ProductWays(const ProductOperand& a, const ProductOperand& b, const ProductOperand& c, const ProductRequest& request)
      : a_(a), b_(b), c_(c), request_(request) {}

  /// The operands whose layouts are not the product's to choose.
  std::vector<const ProductOperand*> given() const;
  /// What a rank has of an operand, to multiply it or as what that makes of C, less the pending sum.
  Layout used(const ProductOperand& operand, const Roles& roles) const;

  /// What becomes of C.
  struct Sum {
    Layout made;  ///< by the ranks' products
    Layout left;  ///< in the end
    bool in_slabs = false;
    std::vector<RedistributionStep> redistribute_c;  ///< made -> left, or what slabs were added to -> left
  };
  Sum sum(const Roles& roles) const;

  /// Operations of the rank that has most to do.
  double flops(const Roles& roles) const;
  /// A way under a name; nothing if it costs more than `most` in all.
  std::optional<ProductWay> price(std::string_view name, const Roles& roles, double most);

 private:
  /// What of an operand travels.
  struct Moved {
    double words = 0, messages = 0;
    bool in_slabs = false;
  };
  using Cut = std::uint64_t;  // of an operand: four bits an axis
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
