#include "src/backend/gpu/cuda/instantiate.cuh"
#include "src/backend/gpu/functors/updates.hpp"

namespace partita {

#define PARTITA_NORMS(...)                                                                                             \
  template void CudaLauncher::reduce_ragged<double, 2>(const Lengths&, const __VA_ARGS__&, const KeepSquares&, Stream) \
      const;
#define PARTITA_UPDATE(METHOD)                        \
  PARTITA_RAGGED(ApplyUpdate<double, Method::METHOD>) \
  PARTITA_RAGGED(ApplyUpdate<float, Method::METHOD>)  \
  PARTITA_NORMS(UpdateNorms<double, Method::METHOD>)  \
  PARTITA_NORMS(UpdateNorms<float, Method::METHOD>)

PARTITA_UPDATE(sgd)
PARTITA_UPDATE(adagrad)
PARTITA_UPDATE(rmsprop)
PARTITA_UPDATE(adam)
PARTITA_UPDATE(adamw)
PARTITA_UPDATE(lars)
PARTITA_UPDATE(lamb)

}  // namespace partita
