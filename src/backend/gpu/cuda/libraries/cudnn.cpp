#include "src/backend/gpu/cuda/libraries/cudnn.hpp"

#include "src/system/loaded_library.hpp"

namespace partita::cuda {

const Cudnn& cudnn() {
  static const Cudnn loaded = [] {
    const LoadedLibrary library({"libcudnn.so." + std::to_string(CUDNN_MAJOR)}, "convolutions on a GPU");
    Cudnn calls;
    library.find("cudnnGetVersion", calls.get_version);
    library.find("cudnnGetErrorString", calls.get_error_string);
    library.find("cudnnGetLastErrorString", calls.get_last_error_string);
    library.find("cudnnCreate", calls.create);
    library.find("cudnnDestroy", calls.destroy);
    library.find("cudnnSetStream", calls.set_stream);
    library.find("cudnnBackendCreateDescriptor", calls.create_descriptor);
    library.find("cudnnBackendDestroyDescriptor", calls.destroy_descriptor);
    library.find("cudnnBackendSetAttribute", calls.set_attribute);
    library.find("cudnnBackendGetAttribute", calls.get_attribute);
    library.find("cudnnBackendFinalize", calls.finalize);
    library.find("cudnnBackendExecute", calls.execute);
    return calls;
  }();
  return loaded;
}

}  // namespace partita::cuda
