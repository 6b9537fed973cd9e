#include "src/backend/gpu/cuda/instantiate.cuh"
#include "src/backend/gpu/functors/losses.hpp"

namespace partita {

#define PARTITA_LOSSES(T)                                                                                  \
  template void CudaLauncher::largest(Index, Index, const RowEntry<T>&, const KeepLargest&, Stream) const; \
  PARTITA_REDUCE(double, 2, RowExponential<T>, KeepLogSum)                                                 \
  PARTITA_REDUCE(double, 4, EntropySums<T>, KeepEntropySums)                                               \
  PARTITA_ELEMENTS(CrossEntropyGradient<T>)                                                                \
  PARTITA_COLUMNS(2, AddOverlap, Overlap<T>)                                                               \
  PARTITA_EACH(OverlapGradient<T>)                                                                         \
  PARTITA_REDUCE(double, 4, Difference<T>, AddResult)                                                      \
  PARTITA_ELEMENTS(DifferenceGradient<T>)
PARTITA_FOR_TYPES(PARTITA_LOSSES)
PARTITA_REDUCE(double, 4, RowEntropy, AddResult)
PARTITA_REDUCE(double, 4, RowHit, AddResult)
PARTITA_REDUCE(double, 4, DiceLoss, AddLoss)

}  // namespace partita
