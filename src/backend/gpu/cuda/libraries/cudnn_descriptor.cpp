#include "src/backend/gpu/cuda/libraries/cudnn_descriptor.hpp"

#include "src/backend/gpu/cuda/errors.hpp"

namespace partita::cuda {

CudnnDescriptor::State::~State() {
  if (native != nullptr) cudnn().destroy_descriptor(native);
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) : state_(std::make_shared<State>()) {
  check(cudnn().create_descriptor(type, &state_->native), "describe an operation");
}

CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, std::vector<CudnnDescriptor> others) {
  std::vector<cudnnBackendDescriptor_t> natives;
  for (const CudnnDescriptor& other : others) natives.push_back(other.native());
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(natives.size()), natives.data());
  state_->parts.insert(state_->parts.end(), others.begin(), others.end());
  return *this;
}

CudnnDescriptor& CudnnDescriptor::finalize() {
  check(cudnn().finalize(native()), "describe an operation");
  return *this;
}

bool CudnnDescriptor::try_finalize() {
  const cudnnStatus_t code = cudnn().finalize(native());
  if (CUDNN_STATUS_CATEGORY(code) == CUDNN_STATUS_NOT_SUPPORTED) return false;
  check(code, "describe an operation");
  return true;
}

std::vector<CudnnDescriptor> CudnnDescriptor::get(cudnnBackendAttributeName_t name,
                                                  cudnnBackendDescriptorType_t type) const {
  return get(name, type, count(name, CUDNN_TYPE_BACKEND_DESCRIPTOR));
}

std::vector<CudnnDescriptor> CudnnDescriptor::get(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type,
                                                  std::int64_t most) const {
  std::vector<CudnnDescriptor> found;
  std::vector<cudnnBackendDescriptor_t> natives;
  for (std::int64_t i = 0; i < most; ++i) natives.push_back(found.emplace_back(type).native());
  const auto filled =
      get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(natives.size()), natives.data());
  found.resize(static_cast<std::size_t>(filled));
  for (CudnnDescriptor& each : found) each.state_->parts.push_back(*this);
  return found;
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                          const void* values) {
  check(cudnn().set_attribute(native(), name, type, count, values), "describe an operation");
}

std::int64_t CudnnDescriptor::count(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const {
  std::int64_t count = 0;
  check(cudnn().get_attribute(native(), name, type, 0, &count, nullptr), "choose a kernel");
  return count;
}

std::int64_t CudnnDescriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t most,
                                  void* values) const {
  std::int64_t count = 0;
  if (most > 0) check(cudnn().get_attribute(native(), name, type, most, &count, values), "choose a kernel");
  return std::min(count, most);
}

}  // namespace partita::cuda
