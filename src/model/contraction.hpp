#pragma once

#include "partita/model/operator.hpp"

#include <functional>
#include <string>
#include <vector>

// Layers whose weights map input channels to output channels: chooses which axes shard which channels.

namespace partita {

/// The layer's description of its contraction.
struct Contraction {
  const Operator* op = nullptr;     ///< gives the operations of the forward pass
  Layout x;                         ///< layout of the input as used: samples and spatial dimensions; C is whole
  Shape y;                          ///< shape of the output
  std::vector<WeightSpec> weights;  ///< the first one maps channels to channels; a second one, if any, is the bias
  int w_outputs = 0, w_inputs = 1;  ///< dimensions of the first weight for the channels of y and of x
  Index groups = 1;                 ///< channel groups; the weight's second dimension covers one group
  /// Return the halos of x and dy for given layouts of x and y. Null if no place reads another one.
  std::function<Halo(const Layout&x, const Layout&y)> x_halo, dy_halo;
};

/// The algorithms that contract() chooses from.
inline std::vector<Algorithm> contraction_algorithms(Index channel_groups) {
  using enum Algorithm;
  return channel_groups > 1 ? std::vector{groups} : std::vector{stationary_x, stationary_y, stationary_w};
}

/// Returns the layouts of the cheapest algorithm, or of the one that the strategy asks for. With outputs sharded over o
/// and inputs over i (Dryden et al. 2019):
///
///     y[N@a C@o H@b sum@i] = product(x[N@a C@i H@b], w[F@o C@i])
///     dx[N@a C@i H@b sum@o] = product'(dy[N@a C@o H@b], w)        dw[F@o C@i sum@(a,b)] = product'(x, dy)
///
///     stationary-x   o is empty: x stays, y is reduce-scattered, dy gathered
///     stationary-y   i is empty: x is gathered, y stays, dx reduce-scattered
///     stationary-w   both, over different axes
///
/// Groups are never split: then o and i are the same axes and no data moves ("groups"). The cheapest algorithm has the
/// fewest operations on a rank and, among these, the fewest words to send. Throws Error if no algorithm fits.
OperatorLayouts contract(const Contraction& product, const LayoutRequest& request);

}  // namespace partita
