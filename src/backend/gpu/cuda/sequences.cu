#include "src/backend/common/activation_functions.hpp"
#include "src/backend/gpu/cuda/instantiate.cuh"
#include "src/backend/gpu/functors/sequences.hpp"

namespace partita {

#define PARTITA_SEQUENCES(T)                                                                                     \
  PARTITA_REDUCE(double, 2, RowDeviation<T>, KeepRowStatistics<T>)                                               \
  PARTITA_ELEMENTS(NormalizeRows<T>)                                                                             \
  PARTITA_REDUCE(double, 2, RowGradient<T>, KeepRowGradient)                                                     \
  PARTITA_COLUMNS(2, KeepRowWeightGradients<T>, RowWeightGradients<T>)                                           \
  PARTITA_ELEMENTS(NormalizeRowsBackward<T, false>)                                                              \
  PARTITA_ELEMENTS(NormalizeRowsBackward<T, true>)                                                               \
  PARTITA_ELEMENTS(Embed<T>)                                                                                     \
  PARTITA_EACH(LinkTokens<T>)                                                                                    \
  PARTITA_EACH(AddTokenRows<T>)                                                                                  \
  template void CudaLauncher::largest(Index, Index, const SeenScore<T>&, const KeepLargestScore&, Stream) const; \
  PARTITA_REDUCE(double, 1, SeenExponential<T>, KeepRowTotal)                                                    \
  PARTITA_EACH(SoftmaxScores<T>)                                                                                 \
  PARTITA_REDUCE(double, 1, WeightedSlope<T>, KeepRowTotal)                                                      \
  PARTITA_EACH(SoftmaxScoresBackward<T>)                                                                         \
  PARTITA_EACH(Interact<T>)                                                                                      \
  PARTITA_EACH(InteractBackward<T>)                                                                              \
  PARTITA_EACH(Rotate<T>)
PARTITA_FOR_TYPES(PARTITA_SEQUENCES)

#define PARTITA_GATE(T, KIND)                                                  \
  PARTITA_ELEMENTS(GateForward<T, ActivationFunction<Activation::Kind::KIND>>) \
  PARTITA_ELEMENTS(GateBackward<T, ActivationFunction<Activation::Kind::KIND>>)
#define PARTITA_GATES(KIND, NEEDS) \
  PARTITA_GATE(double, KIND)       \
  PARTITA_GATE(float, KIND)        \
  PARTITA_GATE(Eigen::bfloat16, KIND) PARTITA_GATE(Eigen::half, KIND)
PARTITA_ACTIVATIONS(PARTITA_GATES)

}  // namespace partita
