#include "src/backend/gpu/cuda/instantiate.cuh"
#include "src/backend/gpu/functors/elementwise.hpp"

namespace partita {

#define PARTITA_FUNCTION(T, KIND)                                           \
  PARTITA_ELEMENTS(Activate<T, ActivationFunction<Activation::Kind::KIND>>) \
  PARTITA_ELEMENTS(ActivateBackward<T, ActivationFunction<Activation::Kind::KIND>>)
#define PARTITA_ALL_TYPES(KIND, NEEDS) \
  PARTITA_FUNCTION(double, KIND)       \
  PARTITA_FUNCTION(float, KIND)        \
  PARTITA_FUNCTION(Eigen::bfloat16, KIND) PARTITA_FUNCTION(Eigen::half, KIND)
PARTITA_ACTIVATIONS(PARTITA_ALL_TYPES)

}  // namespace partita
