#include "src/backend/cuda/instantiate.cuh"
#include "src/backend/functors/elementwise.hpp"

namespace partita {

#define PARTITA_ACTIVATION(T, KIND)                                         \
  PARTITA_ELEMENTS(Activate<T, ActivationFunction<Activation::Kind::KIND>>) \
  PARTITA_ELEMENTS(ActivateBackward<T, ActivationFunction<Activation::Kind::KIND>>)
#define PARTITA_ACTIVATIONS(T)      \
  PARTITA_ACTIVATION(T, relu)       \
  PARTITA_ACTIVATION(T, leaky_relu) \
  PARTITA_ACTIVATION(T, elu)        \
  PARTITA_ACTIVATION(T, sigmoid)    \
  PARTITA_ACTIVATION(T, tanh)       \
  PARTITA_ACTIVATION(T, gelu)       \
  PARTITA_ACTIVATION(T, silu)
PARTITA_FOR_TYPES(PARTITA_ACTIVATIONS)

}  // namespace partita
