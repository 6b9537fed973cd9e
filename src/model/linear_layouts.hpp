#pragma once

#include "src/model/operators.hpp"

namespace partita {

/// Finds the layouts of a linear layer that cost least over its three products.
class LinearLayouts {
 public:
  /// Whether ways are left out that cannot be the best one by a lower bound of their costs. The result is the same.
  enum class Ways : std::uint8_t { promising, all };

  /// @pre `layer` outlives this object.
  explicit LinearLayouts(const LinearOperator& layer) : layer_(layer) {}
  OperatorLayouts best(const LayoutRequest& request, Ways ways = Ways::promising) const;

 private:
  /// Returns the plan of y = x w' with x in layout `x`.
  ProductPlan product_of_y(const LayoutRequest& request, const Layout& x, Algorithm algorithm) const;
  /// Returns the layer's layouts if y is computed as `of_y` says.
  OperatorLayouts layouts(const LayoutRequest& request, const ProductPlan& of_y) const;

  const LinearOperator& layer_;
};

}  // namespace partita
