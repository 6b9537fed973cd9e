#include "src/backend/gpu/cuda/instantiate.cuh"
#include "src/backend/gpu/functors/normalization.hpp"

namespace partita {

#define PARTITA_NORMALIZATION(T)                                 \
  PARTITA_COLUMNS(2, KeepNumbers, ChannelMoments<T>)             \
  PARTITA_COLUMNS(2, KeepStatisticsOfSums<T>, ChannelMoments<T>) \
  PARTITA_EACH(NormMoments<T>)                                   \
  PARTITA_COLUMNS(2, KeepNumbers, GradientMoments<T, false>)     \
  PARTITA_COLUMNS(2, KeepNumbers, GradientMoments<T, true>)      \
  PARTITA_EACH(GroupChannels<T>)                                 \
  PARTITA_EACH(WriteWeightGradients<T>)                          \
  PARTITA_EACH(GivenStatistics<T>)                               \
  PARTITA_ELEMENTS(NormForward<T, false>)                        \
  PARTITA_ELEMENTS(NormForward<T, true>)                         \
  PARTITA_ELEMENTS(NormBackward<T, false>)                       \
  PARTITA_ELEMENTS(NormBackward<T, true>)
PARTITA_FOR_TYPES(PARTITA_NORMALIZATION)
PARTITA_EACH(NormStatistics)

}  // namespace partita
