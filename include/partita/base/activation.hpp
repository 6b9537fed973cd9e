#pragma once

#include <cstdint>
#include <string_view>

namespace partita {

/// A function of one element.
struct Activation {
  enum class Kind : std::uint8_t {
    relu,        ///< max(x, 0)
    leaky_relu,  ///< x where x > 0, else parameter * x
    elu,         ///< x where x > 0, else parameter * (exp(x) - 1) (Clevert et al. 2015)
    sigmoid,     ///< 1 / (1 + exp(-x))
    tanh,
    gelu,  ///< x * P(X <= x) of a standard normal X, exactly, by the error function (Hendrycks and Gimpel 2016)
    silu,  ///< x * sigmoid(x) (Elfwing et al. 2017)
  };
  Kind kind = Kind::relu;
  double parameter = 0;  ///< more than 0 where the function has one

  /// True if the derivative follows from the value: then the backward needs y, which the next layer keeps anyway, else x.
  constexpr bool differentiates_value() const { return kind != Kind::gelu && kind != Kind::silu; }
};

/// "relu", "leaky_relu", ...
std::string_view name(Activation::Kind kind);

}  // namespace partita
