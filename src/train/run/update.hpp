#pragma once

#include "partita/base/types.hpp"
#include "partita/model/optimizer.hpp"

#include <array>

namespace partita {

/// Neighbouring elements of one weight on one rank, all of the master dtype, f64 or f32.
struct Piece {
  DType dtype = DType::f64;
  Index count = 0;
  const std::byte* dw = nullptr;
  std::byte* w = nullptr;
  std::array<std::byte*, 2> state{};  ///< as Optimizer::states names them
  bool decays = true;                 ///< weight decay and the scale by norms apply
};

/// When: the learning rate, and the step counted from 0.
struct Moment {
  double rate = 0;
  Index step = 0;
};

/// Sums of squares over the elements of one weight.
struct Squares {
  double w = 0;
  double direction = 0;  ///< of dw for lars, of adam's direction with decay for lamb
};

/// The first half of a step of a method that needs norms: advances lamb's states and adds the piece's part to `squares`.
void prepare(const Optimizer& optimizer, Moment moment, const Piece& piece, Squares& squares);
/// The step's factor for one weight from the sums over all of it; 1 where a norm is zero.
double scale(const Optimizer& optimizer, const Squares& squares);
/// The step (Method says what it computes); `scale` is 1 for methods without norms.
void apply(const Optimizer& optimizer, Moment moment, const Piece& piece, double scale);

}  // namespace partita
