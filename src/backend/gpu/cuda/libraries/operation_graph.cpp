#include "src/backend/gpu/cuda/libraries/operation_graph.hpp"

#include <set>

namespace partita::cuda {

namespace {

using Descriptors = std::vector<CudnnDescriptor>;

CudnnDescriptor describe(const GraphTensor& tensor, std::int64_t id, Index alignment) {
  CudnnDescriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, tensor.type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const std::int64_t>(tensor.extents))
      .set(CUDNN_ATTR_TENSOR_STRIDES, std::span<const std::int64_t>(tensor.strides))
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, static_cast<std::int64_t>(alignment));
  if (tensor.kind == GraphTensor::Kind::between) made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  if (tensor.kind == GraphTensor::Kind::number) made.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  return made.finalize();
}

/// The type in which a function computes: truth values of comparisons are their own.
cudnnDataType_t computed_in(const GraphOperation& operation, const GraphTensor& result) {
  return operation.function == CUDNN_POINTWISE_CMP_GE ? result.type : CUDNN_DATA_FLOAT;
}

CudnnDescriptor describe(const GraphOperation& operation, const OperationGraph& graph, const Descriptors& tensors) {
  const auto tensor = [&](std::int64_t id) { return tensors[static_cast<std::size_t>(id)]; };
  const auto input = [&](std::size_t i) { return tensor(operation.inputs[i]); };
  const CudnnDescriptor output = tensor(operation.output);
  switch (operation.kind) {
    case GraphOperation::Kind::product:
      return CudnnDescriptor(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
          .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, CudnnDescriptor(CUDNN_BACKEND_MATMUL_DESCRIPTOR)
                                                     .set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT)
                                                     .finalize())
          .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, input(0))
          .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, input(1))
          .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, output)
          .finalize();
    case GraphOperation::Kind::reduction:
      return CudnnDescriptor(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
          .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, CudnnDescriptor(CUDNN_BACKEND_REDUCTION_DESCRIPTOR)
                                                        .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
                                                        .set(CUDNN_ATTR_REDUCTION_OPERATOR, operation.sum)
                                                        .finalize())
          .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, input(0))
          .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, output)
          .finalize();
    case GraphOperation::Kind::transpose:
      return CudnnDescriptor(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
          .set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, input(0))
          .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, output)
          .finalize();
    case GraphOperation::Kind::pointwise: break;
  }
  CudnnDescriptor function(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  function.set(CUDNN_ATTR_POINTWISE_MODE, operation.function)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC,
           computed_in(operation, graph.tensors[static_cast<std::size_t>(operation.output)]));
  if (operation.function == CUDNN_POINTWISE_GEN_INDEX) function.set(CUDNN_ATTR_POINTWISE_AXIS, operation.axis);
  CudnnDescriptor made(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function.finalize());
  constexpr std::array names{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                             CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  for (std::size_t i = 0; i < operation.inputs.size(); ++i) made.set(names[i], input(i));
  return made.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, output).finalize();
}

}  // namespace

std::vector<std::int64_t> addressed(const OperationGraph& graph) {
  std::set<std::int64_t> used;
  for (const GraphOperation& operation : graph.operations) {
    used.insert(operation.inputs.begin(), operation.inputs.end());
    used.insert(operation.output);
  }
  std::erase_if(used, [&](std::int64_t id) {
    return graph.tensors[static_cast<std::size_t>(id)].kind == GraphTensor::Kind::between;
  });
  return {used.begin(), used.end()};
}

std::optional<CudnnDescriptor> cudnn_graph(const OperationGraph& graph, Index alignment) {
  Descriptors tensors, operations;
  for (const GraphTensor& tensor : graph.tensors)
    tensors.push_back(describe(tensor, static_cast<std::int64_t>(tensors.size()), alignment));
  for (const GraphOperation& operation : graph.operations) operations.push_back(describe(operation, graph, tensors));
  CudnnDescriptor all(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (!all.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations).try_finalize()) return std::nullopt;
  return all;
}

}  // namespace partita::cuda
