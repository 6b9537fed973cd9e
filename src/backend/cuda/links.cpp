// Links every functor that a backend on a GPU starts: one that no .cu file instantiates does not link.
#include "src/backend/cuda/launcher.hpp"
#include "src/backend/functor_backend/convolution.hpp"
#include "src/backend/functor_backend/elementwise.hpp"
#include "src/backend/functor_backend/losses.hpp"
#include "src/backend/functor_backend/moves.hpp"
#include "src/backend/functor_backend/normalization.hpp"
#include "src/backend/functor_backend/pooling.hpp"
#include "src/backend/functor_backend/resampling.hpp"
#include "src/backend/functor_backend/updates.hpp"

using namespace partita;

int main() {
  const CudaLauncher launcher(nullptr, 0);
  FunctorBackend<CudaLauncher> backend(launcher);
  run_moves(launcher, {}, {});
  return backend.name().empty() ? 1 : 0;
}
