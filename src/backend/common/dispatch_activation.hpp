#pragma once

#include "partita/base/error.hpp"
#include "src/backend/common/activation_functions.hpp"

namespace partita {

/// Calls f(ActivationFunction<kind>{}) for the given kind.
template <class F>
void dispatch_activation(Activation::Kind kind, F&& f) {
  switch (kind) {
#define PARTITA_CASE(NAME, NEEDS) \
  case Activation::Kind::NAME: return f(ActivationFunction<Activation::Kind::NAME>{});
    PARTITA_ACTIVATIONS(PARTITA_CASE)
#undef PARTITA_CASE
  }
  broken("unknown activation");
}

}  // namespace partita
