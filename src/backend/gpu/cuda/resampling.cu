#include "src/backend/gpu/cuda/instantiate.cuh"
#include "src/backend/gpu/functors/elementwise.hpp"
#include "src/backend/gpu/functors/resampling.hpp"

namespace partita {

#define PARTITA_RESAMPLING(T)                     \
  PARTITA_COLUMNS(1, KeepScaled<T>, ElementOf<T>) \
  PARTITA_ELEMENTS(Spread<T>)                     \
  PARTITA_EACH(Resample<T>)                       \
  PARTITA_EACH(ResampleBackward<T>)               \
  PARTITA_EACH(MoveBlocks<T>)
PARTITA_FOR_TYPES(PARTITA_RESAMPLING)

}  // namespace partita
