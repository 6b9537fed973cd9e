#include "src/backend/gpu/cuda/instantiate.cuh"
#include "src/backend/gpu/functors/elementwise.hpp"

namespace partita {

#define PARTITA_AXPBY(S, T)            \
  PARTITA_ELEMENTS(Axpby<S, T, false>) \
  PARTITA_ELEMENTS(Axpby<S, T, true>)
#define PARTITA_ELEMENTWISE(T)                  \
  PARTITA_ELEMENTS(AddBias<T>)                  \
  PARTITA_COLUMNS(1, KeepBias<T>, ElementOf<T>) \
  PARTITA_ELEMENTS(AddElements<T, false>)       \
  PARTITA_ELEMENTS(AddElements<T, true>)        \
  PARTITA_ELEMENTS(DropElements<T, false>)      \
  PARTITA_ELEMENTS(DropElements<T, true>)       \
  PARTITA_AXPBY(double, T)                      \
  PARTITA_AXPBY(float, T)                       \
  PARTITA_AXPBY(Eigen::bfloat16, T) PARTITA_AXPBY(Eigen::half, T) PARTITA_REDUCE(double, 1, SquareOf<T>, AddTo)
PARTITA_FOR_TYPES(PARTITA_ELEMENTWISE)
PARTITA_EACH(Constants)

}  // namespace partita
