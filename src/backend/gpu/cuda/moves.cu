#include "src/backend/gpu/cuda/instantiate.cuh"
#include "src/backend/gpu/functors/moves.hpp"

namespace partita {

PARTITA_RAGGED(CopyUnit)
#define PARTITA_MOVES(T)                                 \
  PARTITA_RAGGED(CombineElement<T, T, Combine::add>)     \
  PARTITA_RAGGED(CombineElement<T, T, Combine::largest>) \
  PARTITA_RAGGED(ConvertElement<double, T>)              \
  PARTITA_RAGGED(ConvertElement<float, T>)               \
  PARTITA_RAGGED(ConvertElement<Eigen::bfloat16, T>)     \
  PARTITA_RAGGED(ConvertElement<Eigen::half, T>)         \
  PARTITA_RAGGED(ConvertElement<std::int32_t, T>)        \
  PARTITA_RAGGED(ConvertElement<T, std::int32_t>)
PARTITA_FOR_TYPES(PARTITA_MOVES)
PARTITA_RAGGED(ConvertElement<std::int32_t, std::int32_t>)
PARTITA_RAGGED(CombineElement<std::int32_t, std::int32_t, Combine::add>)
PARTITA_RAGGED(CombineElement<std::int32_t, std::int32_t, Combine::largest>)
PARTITA_RAGGED(CombineElement<Eigen::bfloat16, float, Combine::add>)
PARTITA_RAGGED(CombineElement<Eigen::half, float, Combine::add>)

}  // namespace partita
