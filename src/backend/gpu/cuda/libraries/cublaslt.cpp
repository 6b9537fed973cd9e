#include "src/backend/gpu/cuda/libraries/cublaslt.hpp"

#include "src/system/loaded_library.hpp"

namespace partita::cuda {

const CublasLt& cublaslt() {
  static const CublasLt loaded = [] {
    const LoadedLibrary library({"libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR)}, "matrix products on a GPU");
    CublasLt calls;
    library.find("cublasLtGetVersion", calls.get_version);
    library.find("cublasLtGetStatusName", calls.get_status_name);
    library.find("cublasLtCreate", calls.create);
    library.find("cublasLtDestroy", calls.destroy);
    library.find("cublasLtMatrixLayoutCreate", calls.layout_create);
    library.find("cublasLtMatrixLayoutDestroy", calls.layout_destroy);
    library.find("cublasLtMatmulDescCreate", calls.desc_create);
    library.find("cublasLtMatmulDescDestroy", calls.desc_destroy);
    library.find("cublasLtMatmulDescSetAttribute", calls.desc_set_attribute);
    library.find("cublasLtMatmulPreferenceCreate", calls.preference_create);
    library.find("cublasLtMatmulPreferenceDestroy", calls.preference_destroy);
    library.find("cublasLtMatmulPreferenceSetAttribute", calls.preference_set_attribute);
    library.find("cublasLtMatmulAlgoGetHeuristic", calls.algo_get_heuristic);
    library.find("cublasLtMatmul", calls.matmul);
    return calls;
  }();
  return loaded;
}

}  // namespace partita::cuda
