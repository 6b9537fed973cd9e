#include "test/support/functors.hpp"

#include "src/backend/gpu/functor_backend/convolution.hpp"
#include "src/backend/gpu/functor_backend/elementwise.hpp"
#include "src/backend/gpu/functor_backend/losses.hpp"
#include "src/backend/gpu/functor_backend/normalization.hpp"
#include "src/backend/gpu/functor_backend/pooling.hpp"
#include "src/backend/gpu/functor_backend/resampling.hpp"
#include "src/backend/gpu/functor_backend/updates.hpp"
#include "test/support/host_launcher.hpp"

namespace partita::test {

std::unique_ptr<Backend> make_functor_backend() { return std::make_unique<FunctorBackend<HostLauncher>>(); }

std::vector<std::unique_ptr<Backend>> all_types() {
  std::vector<std::unique_ptr<Backend>> all;
  all.push_back(make_reference_backend());
  all.push_back(make_functor_backend());
  all.push_back(make_emulated_backend());
  if (card() != nullptr) all.push_back(make_cuda_backend(*card()));
  return all;
}

}  // namespace partita::test
