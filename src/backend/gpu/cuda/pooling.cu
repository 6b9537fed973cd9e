#include "src/backend/gpu/cuda/instantiate.cuh"
#include "src/backend/gpu/functors/pooling.hpp"

namespace partita {

#define PARTITA_POOLING(T)     \
  PARTITA_EACH(PoolMaximum<T>) \
  PARTITA_EACH(PoolAverage<T>) \
  PARTITA_EACH(PoolBackward<T>)
PARTITA_FOR_TYPES(PARTITA_POOLING)

}  // namespace partita
