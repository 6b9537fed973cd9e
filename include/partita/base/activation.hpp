#pragma once

#include <cstdint>
#include <string_view>

namespace partita {

/// An elementwise activation function.
struct Activation {
  enum class Kind : std::uint8_t {
    relu,        ///< max(x, 0)
    leaky_relu,  ///< x if x > 0, else parameter * x
    elu,         ///< x if x > 0, else parameter * (exp(x) - 1) (Clevert et al. 2015)
    sigmoid,     ///< 1 / (1 + exp(-x))
    tanh,
    gelu,  ///< x * P(X <= x) for a standard normal X, computed with the error function (Hendrycks and Gimpel 2016)
    silu,  ///< x * sigmoid(x) (Elfwing et al. 2017)
  };
  Kind kind = Kind::relu;
  double parameter = 0;  ///< used by leaky_relu and elu, and greater than 0 there

  /// Returns true if the derivative can be computed from the output y. Then the backward pass needs y, which the next
  /// layer keeps anyway. Otherwise the backward pass needs the input x.
  constexpr bool differentiates_value() const { return kind != Kind::gelu && kind != Kind::silu; }
};

/// Returns the name of the function, e.g. "leaky_relu".
std::string_view name(Activation::Kind kind);

}  // namespace partita
