#include "src/backend/cuda/instantiate.cuh"
#include "src/backend/functors/elementwise.hpp"

namespace partita {

#define PARTITA_ELEMENTWISE(T)                  \
  PARTITA_EACH(AddBias<T>)                      \
  PARTITA_COLUMNS(1, ElementOf<T>, KeepBias<T>) \
  PARTITA_EACH(DropElements<T>)                 \
  PARTITA_EACH(Axpby<double, T>)                \
  PARTITA_EACH(Axpby<float, T>)                 \
  PARTITA_EACH(Axpby<Eigen::bfloat16, T>)       \
  PARTITA_EACH(Axpby<Eigen::half, T>)           \
  PARTITA_EACH(MarkNotFinite<T>)
PARTITA_FOR_TYPES(PARTITA_ELEMENTWISE)

}  // namespace partita
