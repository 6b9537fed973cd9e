#pragma once

#include "src/backend/gpu/cuda/libraries/engine_plan.hpp"
#include "test/support/source_folder.hpp"

#include <fstream>
#include <iterator>
#include <string>

namespace partita::test {

// The properties of cards, from files: cuDNN makes plans for a card that is not there.

inline cuda::CudnnDescriptor card_of_file(const char* name) {
  std::ifstream file(source_folder() / "test/support" / name);
  return cuda::device_properties(std::string(std::istreambuf_iterator<char>(file), {}));
}
inline const cuda::CudnnDescriptor& h100() {
  static const cuda::CudnnDescriptor device = card_of_file("h100-properties.json");
  return device;
}
/// Of compute capability 8.0.
inline const cuda::CudnnDescriptor& a100() {
  static const cuda::CudnnDescriptor device = card_of_file("a100-properties.json");
  return device;
}

}  // namespace partita::test
