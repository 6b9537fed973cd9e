#include "src/backend/gpu/cuda/instantiate.cuh"
#include "src/backend/gpu/functors/attention.hpp"

namespace partita {

#define PARTITA_ATTENTION(T)        \
  PARTITA_EACH(AttentionForward<T>) \
  PARTITA_EACH(QueryGradient<T>)    \
  PARTITA_EACH(KeyGradient<T>)
PARTITA_FOR_TYPES(PARTITA_ATTENTION)

#define PARTITA_MERGE(A)        \
  PARTITA_EACH(MergeOutputs<A>) \
  PARTITA_EACH(MergeLogSums<A>)
PARTITA_MERGE(double)
PARTITA_MERGE(float)

}  // namespace partita
