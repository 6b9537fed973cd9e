#include "src/backend/gpu/cuda/instantiate.cuh"
#include "src/backend/gpu/functors/convolution.hpp"

namespace partita {

#define PARTITA_CONVOLUTION(T)  \
  PARTITA_EACH(Convolve<T>)     \
  PARTITA_EACH(ConvolveBack<T>) \
  PARTITA_EACH(Multiply<T>)     \
  PARTITA_REDUCE(Accumulator<T>, 1, FilterTerm<T>, KeepWeight<T>)
PARTITA_FOR_TYPES(PARTITA_CONVOLUTION)

}  // namespace partita
