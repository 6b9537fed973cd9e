#include "src/backend/gpu/cuda/instantiate.cuh"
#include "src/backend/gpu/functors/experts.hpp"

namespace partita {

PARTITA_EACH(FillSlots)
PARTITA_REDUCE(double, 1, IsChosen, KeepCount)

#define PARTITA_EXPERTS(T)                                                \
  PARTITA_EACH(ChooseExperts<T>)                                          \
  PARTITA_ELEMENTS(TakePlaces<T>)                                         \
  PARTITA_ELEMENTS(SumSlots<T>)                                           \
  PARTITA_ELEMENTS(SlotGradient<T>)                                       \
  PARTITA_REDUCE(Accumulator<T>, 1, GateGradient<T>, KeepGateGradient<T>) \
  PARTITA_EACH(WriteScoreGradient<T>)
PARTITA_FOR_TYPES(PARTITA_EXPERTS)

}  // namespace partita
