#pragma once

#include "partita/backend/backend.hpp"

namespace partita {

// One rank's part of a fully-connected layer, by boxes: x[N C D H W], w[F C D H W], y[N C] whose C is w's F. A rank
// contracts what its box of x covers; `w` may hold more than that. The sums over ranks are the caller's.

/// y = x * w' + bias, over the boxes of x and y; the bias (none if empty) is added where `add_bias`.
void linear_forward(Backend& backend, const Tensor& x, const Tensor& w, const Tensor& bias, bool add_bias,
                    const Tensor& y, Stream stream);
/// dx = dy * w over dx's box
void linear_backward_data(Backend& backend, const Tensor& dy, const Tensor& w, const Tensor& dx, Stream stream);
/// dw = dy' * x in the box that dy and x cover and zero elsewhere, or dw += it
void linear_backward_filter(Backend& backend, const Tensor& x, const Tensor& dy, const Tensor& dw, Write write,
                            Stream stream);

}  // namespace partita
