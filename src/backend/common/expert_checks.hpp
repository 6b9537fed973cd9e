#pragma once

#include "partita/backend/backend.hpp"
#include "src/backend/common/alike.hpp"
#include "src/backend/common/routes.hpp"

namespace partita {

// What every backend checks of the tensors of experts.

/// @param like a tensor N C L that has the places
inline void check_routes(const Routing& routing, const Tensor& routes, const Tensor& like) {
  require(like.names() == "NCL", "places and slots are those of tensors N C L");
  require(routing.chosen >= 1 && routing.chosen <= routing.experts && routing.slots >= 0,
          "a place chooses one expert or more, and no more than there are");
  require(routes.dtype() == DType::i32 && routes.volume() == like.box().extent(0) * routing.numbers(like.extent('L')),
          "the routes must be the i32 numbers of all samples");
}

inline void check_scores(const Routing& routing, const Tensor& scores, const Tensor& like) {
  require(scores.names() == "NCL" && scores.extent('C') == routing.experts &&
              scores.box().extent(0) == like.box().extent(0) && scores.extent('L') == like.extent('L'),
          "there must be a score for each place and expert");
}

inline void check_gates(const Routing& routing, const Tensor& gates, const Tensor& like) {
  require(gates.dtype() == DType::f64 && gates.volume() == like.box().extent(0) * like.extent('L') * routing.chosen,
          "there must be an f64 gate for each place and choice");
}

/// @param x places
/// @param y the same channels in slots
inline void check_slots(const Routing& routing, const Tensor& routes, const Tensor& x, const Tensor& y) {
  check_routes(routing, routes, x);
  require(y.names() == "NCL" && y.dtype() == x.dtype() && y.box().extent(0) == x.box().extent(0) &&
              y.extent('C') == routing.experts * x.extent('C') && y.extent('L') == routing.slots,
          "there must be all channels of each expert and slot");
}

inline void check_combine(const Routing& routing, const Tensor& routes, const Tensor& gates, const Tensor& x,
                          const Tensor& y) {
  check_slots(routing, routes, y, x);
  check_gates(routing, gates, y);
}

inline void check_combine_backward(const Routing& routing, const Tensor& routes, const Tensor& gates,
                                   const Tensor& scores, const Tensor& x, const Tensor& dy, const Tensor& dx,
                                   const Tensor& dscores) {
  check_combine(routing, routes, gates, x, dy);
  check_alike(x, dx);
  check_scores(routing, scores, dy);
  check_alike(scores, dscores);
}

}  // namespace partita
