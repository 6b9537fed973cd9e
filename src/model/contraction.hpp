#pragma once

#include "partita/model/operator.hpp"

#include <functional>
#include <string>
#include <vector>

// A layer whose weights join the channels of its input to those of its output: which axes cut which.

namespace partita {

/// The layer's side of it.
struct Contraction {
  const Operator* op = nullptr;     ///< says what its forward takes
  Layout x;                         ///< samples and space of its input as it runs; C whole
  Shape y;                          ///< of its output
  std::vector<WeightSpec> weights;  ///< the first of channels times channels, then maybe a bias
  int w_outputs = 0, w_inputs = 1;  ///< dimensions of the weight that belong to the channels of y and of x
  Index groups = 1;                 ///< of channels; their weight's second dimension is one group's
  /// The halos of x and dy for layouts of x and y.
  std::function<Halo(const Layout&x, const Layout&y)> x_halo, dy_halo;
};

/// The names of the ways below.
inline std::vector<std::string> contraction_algorithms(Index groups) {
  return groups > 1 ? std::vector<std::string>{"groups"}
                    : std::vector<std::string>{"stationary-x", "stationary-y", "stationary-w"};
}

/// The cheapest way, or the one that the strategy asks for. With outputs cut over o and inputs over i (Dryden et al. 2019):
///
///     y[N@a C@o H@b sum@i] = product(x[N@a C@i H@b], w[F@o C@i])
///     dx[N@a C@i H@b sum@o] = product'(dy[N@a C@o H@b], w)        dw[F@o C@i sum@(a,b)] = product'(x, dy)
///
///     stationary-x   o is empty: x stays, y is reduce-scattered, dy gathered
///     stationary-y   i is empty: x is gathered, y stays, dx reduce-scattered
///     stationary-w   both, over different axes
///
/// Groups are never cut: o and i are the same axes then, and nothing travels ("groups"). Cheapest means fewest operations on a rank,
/// and among these the fewest words. Throws Error where nothing fits.
OperatorLayouts contract(const Contraction& product, const LayoutRequest& request);

}  // namespace partita
