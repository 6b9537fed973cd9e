#pragma once

#include "partita/base/types.hpp"
#include "src/backend/gpu/cuda/libraries/cudnn_descriptor.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace partita::cuda {

/// A tensor of an OperationGraph. Its place in `tensors` is the number by which operations and addresses name it.
struct GraphTensor {
  enum class Kind {
    stored,   ///< in the memory of the card
    between,  ///< never stored; engines keep parts of it in registers
    number,   ///< one number, in the memory of the CPU
  };
  using Dims = std::array<std::int64_t, 4>;
  Dims extents{1, 1, 1, 1}, strides{1, 1, 1, 1};  ///< in elements
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  Kind kind = Kind::between;
};

/// An operation of an OperationGraph. Dimensions of extent 1 stand for all places of the other tensors.
struct GraphOperation {
  enum class Kind {
    product,    ///< of the last two dimensions of two tensors; several heads of the first may share one of the second
    pointwise,  ///< a function of each element of up to three tensors
    reduction,  ///< over dimensions that are longer in the input
    transpose,  ///< the same elements by other strides
  };
  Kind kind = Kind::pointwise;
  cudnnPointwiseMode_t function = CUDNN_POINTWISE_IDENTITY;
  cudnnReduceTensorOp_t sum = CUDNN_REDUCE_TENSOR_ADD;
  std::int64_t axis = 0;  ///< whose index a pointwise function gives
  std::vector<std::int64_t> inputs{};
  std::int64_t output = 0;
};

/// What cuDNN shall compute, as a value: tensors of four dimensions, and operations in the order of computation.
struct OperationGraph {
  std::vector<GraphTensor> tensors;
  std::vector<GraphOperation> operations;
};

/// Returns the tensors of the graph's operations that have addresses: those that are stored, and numbers.
std::vector<std::int64_t> addressed(const OperationGraph& graph);

/// Returns the graph as cuDNN takes it, or nothing if cuDNN has no support for it. `alignment` are the bytes to which
/// the addresses of stored tensors are aligned. Throws Error if cuDNN finds that tensors and operations do not fit
/// together.
std::optional<CudnnDescriptor> cudnn_graph(const OperationGraph& graph, Index alignment);

}  // namespace partita::cuda
