#include "partita/base/error.hpp"
#include "src/backend/gpu/cuda.hpp"

namespace partita {

namespace {

[[noreturn]] void refuse() {
  fail(
      "this build cannot compute on GPUs: install the CUDA toolkit with cuDNN and configure again, or use --device "
      "cpu");
}

}  // namespace

bool have_cuda() { return false; }
CudaVersions cuda_versions() { return {}; }
std::vector<CudaCard> cuda_cards() { return {}; }
std::unique_ptr<CudaDevice> make_cuda_device(int) { refuse(); }
std::unique_ptr<Backend> make_cuda_backend(CudaDevice&, const CudaOptions&) { refuse(); }
bool cuda_fuses(const Activation&) { return false; }
std::vector<CudnnUse> cudnn_uses(std::span<const ConvProblem>, const CudaOptions&, const std::string&) { refuse(); }

}  // namespace partita
