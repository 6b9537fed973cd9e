#include "src/backend/gpu/cuda/instantiate.cuh"
#include "src/backend/gpu/functors/normalization.hpp"

namespace partita {

#define PARTITA_NORMALIZATION(T)                      \
  PARTITA_EACH(ChannelCenters<T>)                     \
  PARTITA_COLUMNS(2, ChannelMoments<T>, KeepNumbers)  \
  PARTITA_COLUMNS(2, GradientMoments<T>, KeepNumbers) \
  PARTITA_EACH(GroupChannels<T>)                      \
  PARTITA_EACH(AddParts<T>)                           \
  PARTITA_EACH(GivenStatistics<T>)                    \
  PARTITA_ELEMENTS(NormForward<T>)                    \
  PARTITA_ELEMENTS(NormBackward<T>)
PARTITA_FOR_TYPES(PARTITA_NORMALIZATION)
PARTITA_EACH(NormMoments)
PARTITA_EACH(NormStatistics)

}  // namespace partita
