#pragma once

#include "partita/backend/backend.hpp"
#include "src/backend/common/alike.hpp"
#include "src/backend/common/norm_checks.hpp"

#include <algorithm>

namespace partita {

// What every backend checks of the tensors of a sequence (Backend::row_norm_forward and the functions after it).

/// @param vector e.g. a scale
inline void check_row_weight(const Tensor& vector, const Tensor& x) {
  check_channels(vector, x.extent('C'));
  require(vector.dtype() == x.dtype(), "the weights of a normalization must have x's dtype");
}

inline void check_row_gradients(const Tensor& x, const Tensor& dy, const Tensor& scale, const Tensor& added,
                                const Tensor& dx, const RowNormWeights& weights) {
  check_alike(x, dy);
  require(!added || dx, "what is added to dx needs dx");
  if (added) check_alike(x, added);
  if (dx) check_alike(x, dx);
  check_row_weight(scale, x);
  if (weights.dscale) check_row_weight(weights.dscale, x);
  if (weights.dshift) check_row_weight(weights.dshift, x);
}

/// @param y the rows that are taken from the table, or their gradient
inline void check_embedding(const Tensor& tokens, const Tensor& table, const Tensor& y) {
  require((table.names() == "VC" || table.names() == "VCL") && table.dtype() == y.dtype(),
          "a table must have dimensions V C or V C L, and y's dtype");
  require(y.find('C') >= 0 && table.box()[1] == y.box()[y.find('C')], "y must have the table's channels");
  require(table.names() == "VC" || (y.names() == "NCL" && table.box()[2] == y.box()[2]),
          "y must have a place for each table");
  const Index rows = y.volume() / std::max<Index>(y.extent('C'), 1);
  require(tokens.dtype() == DType::i32 && (rows == 0 || tokens.volume() % rows == 0),
          "there must be equally many tokens for each row of channels");
}

/// The tokens of each row of y.
inline Index bag_of(const Tensor& tokens, const Tensor& y) {
  return y.volume() == 0 ? 0 : tokens.volume() / (y.volume() / y.extent('C'));
}

/// @param y the products, or their gradient
inline void check_interaction(const Tensor& vectors, const Tensor& dense, const Tensor& y) {
  const Index of = vectors.extent('L') + 1;
  require(vectors.names() == "NCL" && dense.names() == "NC" && y.names() == "NC",
          "vectors must have dimensions N C L, and the others N C");
  require(vectors.dtype() == dense.dtype() && vectors.dtype() == y.dtype(), "all must have the same dtype");
  require(vectors.box()[0] == dense.box()[0] && vectors.box()[0] == y.box()[0], "all must have the same samples");
  require(vectors.box()[1] == dense.box()[1] && y.extent('C') == dense.extent('C') + of * (of - 1) / 2,
          "y must have the channels of `dense`, which those of the vectors equal, and all pairs");
}

/// The rows of scores of a tensor x[N (heads keys) L].
struct ScoreSizes {
  Index rows = 0, keys = 0;
  ScoreSizes(const Tensor& x, Index heads) {
    require(x.names() == "NCL", "scores must have dimensions N C L");
    if (x.volume() == 0) return;
    require(heads > 0 && x.extent('C') % heads == 0, "the channels of scores must be rows of all heads");
    rows = x.extent('N') * x.extent('L') * heads;
    keys = x.extent('C') / heads;
  }
};

/// @param y the gated channels, or their gradient
inline void check_gate(const Tensor& x, const Tensor& y) {
  require(x.dtype() == y.dtype() && x.names() == y.names(), "both tensors must have the same dtype and dimensions");
  for (int d = 0; d < x.box().dims(); ++d)
    require(x.box().extent(d) == (x.names()[d] == 'C' ? 2 : 1) * y.box().extent(d),
            "x must have two channels for each one of y");
}

inline void check_rotation(const Rotation& rotation, const Tensor& x, const Tensor& y) {
  check_alike(x, y);
  require(x.names() == "NCL", "a rotation needs a tensor N C L");
  require(rotation.dim > 0 && rotation.dim % 2 == 0, "the channels of a head must be pairs");
  require(
      rotation.heads > 0 && rotation.rotated <= rotation.heads && x.extent('C') % (rotation.heads * rotation.dim) == 0,
      "x must have whole groups of heads");
}

}  // namespace partita
