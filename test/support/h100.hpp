#pragma once

#include "src/backend/gpu/cuda/libraries/conv_plan.hpp"
#include "test/support/source_folder.hpp"

#include <fstream>
#include <iterator>
#include <string>

namespace partita::test {

/// The properties of an H100, from a file: cuDNN makes plans for a card that is not there.
inline const cuda::CudnnDescriptor& h100() {
  static const cuda::CudnnDescriptor device = [] {
    std::ifstream file(source_folder() / "test/support/h100-properties.json");
    return cuda::device_properties(std::string(std::istreambuf_iterator<char>(file), {}));
  }();
  return device;
}

}  // namespace partita::test
