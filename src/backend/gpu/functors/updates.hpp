#pragma once

#include "src/backend/common/update_rules.hpp"
#include "src/backend/gpu/functors/launcher.hpp"

namespace partita {

/// As many pieces of weights as fit into a kernel's arguments.
template <class T>
struct UpdateBatch {
  UpdateRule<T> rule;
  double* sums = nullptr;  // two squares for each piece; null if the method needs none
  Lengths lengths{};
  std::array<UpdateArrays<T>, Lengths::most> arrays{};
  std::array<bool, Lengths::most> scaled{};
};

/// Updates element i of a piece.
template <class T, Method method>
struct ApplyUpdate {
  UpdateBatch<T> batch;
  Optimizer optimizer;
  template <class I>
  PARTITA_HOST_DEVICE void operator()(Index group, I i) const {
    const auto piece = static_cast<std::size_t>(group);
    double scale = 1;
    if (batch.sums != nullptr && batch.scaled[piece])
      scale = update_scale(optimizer, {batch.sums[2 * group], batch.sums[2 * group + 1]});
    const UpdateArrays<T>& arrays = batch.arrays[piece];
    batch.rule.template apply<method>(arrays[static_cast<Index>(i)], static_cast<T>(scale));
    arrays.round(static_cast<Index>(i));
  }
};

template <class T, Method method>
struct UpdateNorms {
  UpdateBatch<T> batch;
  PARTITA_HOST_DEVICE Sums<double, 2> operator()(Index group, Index i) const {
    const Squares squares = batch.rule.template norms<method>(batch.arrays[group][i]);
    return {{squares.w, squares.direction}};
  }
};

struct KeepSquares {
  double* sums;
  PARTITA_HOST_DEVICE void operator()(Index group, const Sums<double, 2>& squares) const {
    sums[2 * group] = squares.of[0];
    sums[2 * group + 1] = squares.of[1];
  }
};

}  // namespace partita
