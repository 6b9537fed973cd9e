#pragma once

#include "partita/base/routing.hpp"
#include "partita/model/layers.hpp"

#include <vector>

namespace partita {

/// What dispatch and combine share: how places choose experts.
class RoutedOperator : public Operator {
 public:
  explicit RoutedOperator(const Experts& experts) : experts_(experts) {}
  std::string describe() const override;
  int inputs() const override { return 2; }
  /// The output's channels are not the first input's, so they are whole.
  Layout follow(const Layout& x, const Shape& output) const override;
  /// Where no place is dropped, none depends on others.
  PlaceUse place_use() const override;
  const Experts& experts() const { return experts_; }
  /// How `places` of a sample are routed.
  Routing routing(Index places) const;

 protected:
  /// Throws Error unless these options can route a sequence with these scores.
  void check(const Shape& scores) const;
  /// The layouts in which each rank has all places, channels and experts of its samples.
  OperatorLayouts by_samples(const LayoutRequest& request) const;

 private:
  Experts experts_;
};

/// y[N (E C) S] = the places of x[N C L] in the slots of the experts that their scores[N E L] choose.
class DispatchOperator final : public RoutedOperator {
 public:
  using RoutedOperator::RoutedOperator;
  std::string_view kind() const override { return "dispatch"; }
  Shape output(std::span<const Shape> inputs) const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override { return by_samples(request); }
  double flops(std::span<const Shape> /*inputs*/, const Shape& /*output*/) const override { return 0; }
  Kept keeps() const override { return {}; }
  /// The routes.
  HeldNumbers numbers(const Layout& x, int rank, bool training) const override;
};

/// y[N F L] = the sum over a place's slots in x[N (E F) S] of gate * slot, with gates from the scores[N E L], which are
/// the first input.
class CombineOperator final : public RoutedOperator {
 public:
  using RoutedOperator::RoutedOperator;
  std::string_view kind() const override { return "combine"; }
  Shape output(std::span<const Shape> inputs) const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override { return by_samples(request); }
  double flops(std::span<const Shape> inputs, const Shape& output) const override;
  /// The backward reads the inputs and dy, and writes the gradients.
  MemoryPasses memory_passes(bool /*training*/) const override { return {.x = 1, .y = 1, .dx = 2, .dy = 1}; }
  /// The routes and the gates.
  HeldNumbers numbers(const Layout& scores, int rank, bool training) const override;
  bool adds_loss() const override { return experts().balance > 0; }
};

}  // namespace partita
