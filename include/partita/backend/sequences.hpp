#pragma once

#include "partita/base/philox.hpp"
#include "partita/device/tensor.hpp"

namespace partita {

/// How a row of channels is normalized: y = scale[c] * (x - mean) / sqrt(variance + epsilon) + shift[c] (Ba, Kiros and
/// Hinton, "Layer Normalization", 2016).
struct RowNorm {
  double epsilon = 1e-5;
  /// false: the mean counts as 0, and the variance is the mean of squares (Zhang and Sennrich, "Root Mean Square Layer
  /// Normalization", 2019)
  bool centered = true;
};

/// Which channels of a tensor x[N C L] are the heads of one kind. Its channels are groups of `step`. In each group, the
/// heads begin at channel `first` and follow one another.
struct Heads {
  Tensor x;
  Index first = 0, step = 0;
};

/// The weights of pairs of places that attention leaves out (Srivastava et al., "Dropout", 2014): those of which
/// random.at_step(step[0]).uniform(i) < rate. i is the row-major index of (sample, place, head of queries, key), so
/// that the numbers do not depend on the layout. The others are divided by 1 - rate.
struct WeightDropout {
  double rate = 0;
  Random random{0, 0};
  Tensor step = {};        ///< one f64 number on the device
  Index first_sample = 0;  ///< what is added to the samples of a box
  Index heads = 1;         ///< of queries, of all ranks
  Index places = 1;        ///< of the whole sequence
};

/// Attention: each place of a sequence takes the mean of values, weighted by how its queries match the keys (Vaswani et
/// al., "Attention Is All You Need", 2017).
struct HeadShape {
  Index groups = 1;     ///< groups of heads of which a rank holds some or all
  Index queries = 1;    ///< heads of queries in a group, which has one head of keys and one of values
  Index dim = 1;        ///< channels of a head
  double scale = 1;     ///< of the products of queries and keys
  bool causal = false;  ///< a place sees itself and the places before it
  /// segments[N 1 L] (i32), with all places of queries and keys: a place sees only those with an equal number. Empty: a
  /// place sees all.
  Tensor segments = {};
  WeightDropout dropout = {};
};

/// Turns pairs of channels by angles that grow with the place (Su et al., "RoFormer", 2021). In a head, channels i and
/// i + dim/2 are turned by l * base^(-2i/dim) at place l.
struct Rotation {
  Index heads = 1;    ///< heads of a group, which follow one another
  Index rotated = 1;  ///< as many of them, from the first one, are turned; the others stay
  Index dim = 2;      ///< channels of a head
  double base = 10000;
  bool back = false;  ///< turns the other way, which is the adjoint
};

}  // namespace partita
