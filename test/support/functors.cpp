#include "test/support/functors.hpp"

#include "partita/base/error.hpp"
#include "src/backend/gpu/functor_backend/attention.hpp"
#include "src/backend/gpu/functor_backend/convolution.hpp"
#include "src/backend/gpu/functor_backend/elementwise.hpp"
#include "src/backend/gpu/functor_backend/experts.hpp"
#include "src/backend/gpu/functor_backend/losses.hpp"
#include "src/backend/gpu/functor_backend/normalization.hpp"
#include "src/backend/gpu/functor_backend/pooling.hpp"
#include "src/backend/gpu/functor_backend/resampling.hpp"
#include "src/backend/gpu/functor_backend/sequences.hpp"
#include "src/backend/gpu/functor_backend/updates.hpp"
#include "test/support/host_launcher.hpp"

namespace partita::test {

std::unique_ptr<Backend> make_functor_backend() { return std::make_unique<FunctorBackend<HostLauncher>>(); }

std::vector<Runner> runners() {
  std::vector<Runner> all{Runner::cpu, Runner::emulated};
  if (card() != nullptr) all.push_back(Runner::card);
  return all;
}

std::unique_ptr<Backend> make_functors(Runner runner) {
  switch (runner) {
    case Runner::cpu: return make_functor_backend();
    case Runner::emulated: return make_emulated_backend();
    case Runner::card: return make_cuda_backend(*card());
  }
  broken("unknown runner");
}

std::vector<std::unique_ptr<Backend>> all_types() {
  std::vector<std::unique_ptr<Backend>> all;
  all.push_back(make_reference_backend());
  for (const Runner runner : runners()) all.push_back(make_functors(runner));
  return all;
}

}  // namespace partita::test
