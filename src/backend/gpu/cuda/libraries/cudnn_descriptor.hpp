#pragma once

#include "src/backend/gpu/cuda/libraries/cudnn.hpp"

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace partita::cuda {

/// A descriptor of cuDNN's graph API, e.g. a tensor, an operation or an engine. Attributes are set one by one; then
/// `finalize` checks them, and the descriptor can be an attribute of others. Copies share it. Everything throws Error
/// if cuDNN refuses it.
class CudnnDescriptor {
 public:
  CudnnDescriptor() = default;
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);

  template <class V>
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, std::span<const V> values) {
    set(name, type_of<V>(), static_cast<std::int64_t>(values.size()), values.data());
    return *this;
  }
  template <class V>
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const std::vector<V>& values) {
    return set(name, std::span<const V>(values));
  }
  template <class V>
  requires(std::is_arithmetic_v<V> || std::is_enum_v<V> ||
           std::is_pointer_v<V>) CudnnDescriptor& set(cudnnBackendAttributeName_t name, V value) {
    return set(name, std::span<const V>(&value, 1));
  }
  /// Sets an attribute that is another descriptor, or several. They live as long as this one.
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, std::vector<CudnnDescriptor> others);
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other) {
    return set(name, std::vector{other});
  }
  CudnnDescriptor& finalize();
  /// As finalize, but returns false where cuDNN has no support for what the descriptor asks for.
  bool try_finalize();

  /// Returns an attribute's values.
  template <class V>
  std::vector<V> get(cudnnBackendAttributeName_t name) const {
    std::vector<V> values(static_cast<std::size_t>(count(name, type_of<V>())));
    values.resize(
        static_cast<std::size_t>(get(name, type_of<V>(), static_cast<std::int64_t>(values.size()), values.data())));
    return values;
  }
  /// Returns an attribute's values that are descriptors of a type.
  std::vector<CudnnDescriptor> get(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) const;
  /// As above, for an attribute whose number of values cuDNN does not tell beforehand: at most `most`.
  std::vector<CudnnDescriptor> get(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type,
                                   std::int64_t most) const;

  cudnnBackendDescriptor_t native() const { return state_->native; }

 private:
  template <class V>
  static constexpr cudnnBackendAttributeType_t type_of() {
    if constexpr (std::same_as<V, std::int32_t>) return CUDNN_TYPE_INT32;
    if constexpr (std::same_as<V, std::int64_t>) return CUDNN_TYPE_INT64;
    if constexpr (std::same_as<V, double>) return CUDNN_TYPE_DOUBLE;
    if constexpr (std::same_as<V, float>) return CUDNN_TYPE_FLOAT;
    if constexpr (std::same_as<V, bool>) return CUDNN_TYPE_BOOLEAN;
    if constexpr (std::same_as<V, char>) return CUDNN_TYPE_CHAR;
    if constexpr (std::same_as<V, void*>) return CUDNN_TYPE_VOID_PTR;
    if constexpr (std::same_as<V, cudnnDataType_t>) return CUDNN_TYPE_DATA_TYPE;
    if constexpr (std::same_as<V, cudnnConvolutionMode_t>) return CUDNN_TYPE_CONVOLUTION_MODE;
    if constexpr (std::same_as<V, cudnnPointwiseMode_t>) return CUDNN_TYPE_POINTWISE_MODE;
    if constexpr (std::same_as<V, cudnnReduceTensorOp_t>) return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
    if constexpr (std::same_as<V, cudnnBackendHeurMode_t>) return CUDNN_TYPE_HEUR_MODE;
    if constexpr (std::same_as<V, cudnnBackendNumericalNote_t>) return CUDNN_TYPE_NUMERICAL_NOTE;
    if constexpr (std::same_as<V, cudnnBackendKnobType_t>) return CUDNN_TYPE_KNOB_TYPE;
  }

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* values);
  std::int64_t count(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const;
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t most,
                   void* values) const;

  struct State {
    cudnnBackendDescriptor_t native = nullptr;
    std::vector<CudnnDescriptor> parts;
    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State();
  };
  std::shared_ptr<State> state_;
};

}  // namespace partita::cuda
