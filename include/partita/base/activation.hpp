#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace partita {

/// The list of all activations: EACH(name, needs). `needs` is what the derivative is computed from: the output y, which
/// the next layer keeps anyway, or the input x.
#define PARTITA_ACTIVATIONS(EACH)                                                           \
  EACH(relu, y)       /* max(x, 0) */                                                       \
  EACH(leaky_relu, y) /* x if x > 0, else parameter * x */                                  \
  EACH(elu, y)        /* x if x > 0, else parameter * (exp(x) - 1) (Clevert et al. 2015) */ \
  EACH(sigmoid, y)    /* 1 / (1 + exp(-x)) */                                               \
  EACH(tanh, y)                                                                             \
  EACH(gelu, x) /* x * P(X <= x) for a standard normal X (Hendrycks and Gimpel 2016) */     \
  EACH(silu, x) /* x * sigmoid(x) (Elfwing et al. 2017) */

/// An elementwise activation function.
struct Activation {
#define PARTITA_KIND(NAME, NEEDS) NAME,
  enum class Kind : std::uint8_t { PARTITA_ACTIVATIONS(PARTITA_KIND) };
#undef PARTITA_KIND
  Kind kind = Kind::relu;
  double parameter = 0;  ///< used by leaky_relu and elu, and greater than 0 there

  /// All kinds, in the order of the list.
  static std::span<const Kind> kinds();
  /// Returns true if the derivative is computed from the output y.
  bool differentiates_value() const;
};

/// Returns the name of the function, e.g. "leaky_relu".
std::string_view name(Activation::Kind kind);

}  // namespace partita
