#pragma once

#include "partita/base/error.hpp"
#include "src/backend/functors/activation_functions.hpp"

namespace partita {

/// Calls f(ActivationFunction<kind>{}) for the given kind.
template <class F>
void dispatch_activation(Activation::Kind kind, F&& f) {
  switch (kind) {
    case Activation::Kind::relu: return f(ActivationFunction<Activation::Kind::relu>{});
    case Activation::Kind::leaky_relu: return f(ActivationFunction<Activation::Kind::leaky_relu>{});
    case Activation::Kind::elu: return f(ActivationFunction<Activation::Kind::elu>{});
    case Activation::Kind::sigmoid: return f(ActivationFunction<Activation::Kind::sigmoid>{});
    case Activation::Kind::tanh: return f(ActivationFunction<Activation::Kind::tanh>{});
    case Activation::Kind::gelu: return f(ActivationFunction<Activation::Kind::gelu>{});
    case Activation::Kind::silu: return f(ActivationFunction<Activation::Kind::silu>{});
  }
  broken("unknown activation");
}

}  // namespace partita
