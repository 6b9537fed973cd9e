#pragma once

#include "partita/base/types.hpp"
#include "partita/model/optimizer.hpp"

#include <array>

namespace partita {

/// Contiguous elements of one weight on one rank, in the master dtype (f64 or f32).
struct Piece {
  DType dtype = DType::f64;
  Index count = 0;
  const std::byte* dw = nullptr;
  std::byte* w = nullptr;
  std::array<std::byte*, 2> state{};  ///< in the order of Optimizer::states
  bool decays = true;                 ///< weight decay and the scale by norms apply
};

/// The learning rate of a step, and its number from 0.
struct Moment {
  double rate = 0;
  Index step = 0;
};

/// Sums of squares over the elements of one weight.
struct Squares {
  double w = 0;
  double direction = 0;  ///< lars: of dw; lamb: of Adam's direction with weight decay
};

/// Does the first half of a step for a method that needs norms: advances LAMB's states and adds the piece's part to
/// `squares`.
void prepare(const Optimizer& optimizer, Moment moment, const Piece& piece, Squares& squares);
/// Returns the factor of the step for one weight, from the sums over the whole weight; 1 if a norm is zero.
double scale(const Optimizer& optimizer, const Squares& squares);
/// Updates the elements of a piece (Method gives the formulas). `scale` is 1 for methods without norms.
void apply(const Optimizer& optimizer, Moment moment, const Piece& piece, double scale);

}  // namespace partita
