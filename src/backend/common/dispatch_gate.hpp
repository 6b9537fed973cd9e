#pragma once

#include "partita/base/dispatch.hpp"
#include "src/backend/common/dispatch_activation.hpp"
#include "src/backend/common/gate.hpp"

namespace partita {

/// Calls use(T{}, gate) with the type T of the elements and the Gate of f.
template <class Use>
void dispatch_gate(const Activation& f, DType dtype, Use&& use) {
  dispatch_float(dtype, [&](auto t) {
    using A = Accumulator<decltype(t)>;
    dispatch_activation(f.kind, [&](auto function) {
      use(t, Gate<decltype(function), A>{static_cast<A>(f.parameter), f.differentiates_value()});
    });
  });
}

}  // namespace partita
