#pragma once

#include "partita/backend/backend.hpp"
#include "src/backend/common/scratch.hpp"

// Grouped convolutions, one group after the other, for backends that have no better way.

namespace partita {

/// Group g of `groups`: its channels of x, its filters, and its channels of y.
class Group {
 public:
  Group(Index g, Index groups) : g_(g), groups_(groups) {}
  Box channels(const Tensor& tensor) const {
    Box box = tensor.box();
    const Index count = box.extent(1) / groups_;
    box[1] = {box[1].lo + g_ * count, box[1].lo + (g_ + 1) * count};
    return box;
  }
  /// The group's rows of w or of a bias, as a view, since they are contiguous.
  Tensor filters(const Tensor& w) const {
    if (!w) return w;
    Box box = w.box();
    const Index count = box.extent(0) / groups_, row = box.volume() / box.extent(0);
    box[0] = {box[0].lo + g_ * count, box[0].lo + (g_ + 1) * count};
    return Tensor::view(w, g_ * count * row, w.names(), box);
  }
  /// Copies the group's channels of a tensor into a dense tensor.
  Tensor of(const Tensor& tensor) const { return scratch_copy(tensor, channels(tensor)); }
  /// Allocates a dense tensor for the group's channels of `tensor`.
  Tensor room(const Tensor& tensor) const { return scratch_tensor(tensor, channels(tensor)); }

 private:
  Index g_, groups_;
};

/// Calls forward(x, w, bias, y) for each group.
template <class Forward>
void grouped_forward(Index groups, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y,
                     Forward&& forward) {
  if (groups == 1) return forward(x, w, bias, y);
  for (Index g = 0; g < groups; ++g) {
    const Group group(g, groups);
    const Tensor part = group.room(y);
    forward(group.of(x), group.filters(w), group.filters(bias), part);
    copy_box(part, y, part.box(), {});
  }
}

/// Calls backward_data(dy, w, dx) for each group.
template <class BackwardData>
void grouped_backward_data(Index groups, const Tensor& dy, const Tensor& w, const Tensor& dx,
                           BackwardData&& backward_data) {
  if (groups == 1) return backward_data(dy, w, dx);
  for (Index g = 0; g < groups; ++g) {
    const Group group(g, groups);
    const Tensor part = group.room(dx);
    backward_data(group.of(dy), group.filters(w), part);
    copy_box(part, dx, part.box(), {});
  }
}

/// Calls backward_filter(x, dy, dw) for each group.
template <class BackwardFilter>
void grouped_backward_filter(Index groups, const Tensor& x, const Tensor& dy, const Tensor& dw,
                             BackwardFilter&& backward_filter) {
  if (groups == 1) return backward_filter(x, dy, dw);
  for (Index g = 0; g < groups; ++g) {
    const Group group(g, groups);
    backward_filter(group.of(x), group.of(dy), group.filters(dw));
  }
}

}  // namespace partita
