#pragma once

#include "src/backend/gpu/cuda/libraries/engine_plan.hpp"
#include "src/backend/gpu/cuda/libraries/operation_graph.hpp"
#include "src/backend/gpu/fused_attention.hpp"

#include <optional>

namespace partita::cuda {

/// Returns the graph of a part of a call, whose first tensors have the numbers of AttentionTensor. Its engines fuse it
/// (Dao et al., "FlashAttention", 2022), so that no numbers of pairs of places are stored forward. Backward the
/// gradients of scores are stored, since dq is otherwise summed in any order.
OperationGraph attention_graph(const AttentionGeometry& call, const AttentionPart& part);

/// How cuDNN computes attention: by executions of one plan, in parts that are alike.
struct AttentionPath {
  AttentionPart part;
  EnginePlan plan;
  std::vector<std::int64_t> tensors;  ///< those that have addresses
  /// Enqueues an execution in the stream of the handle. The engine's workspace lies behind that of the part.
  void run(cudnnHandle_t handle, const AttentionRun& run, std::byte* workspace) const;
};
/// Returns how cuDNN computes a call with at most `workspace` bytes, and with the same bits in each run; none if no
/// engine can.
std::optional<AttentionPath> attention_path(const AttentionGeometry& call, const CudnnDescriptor& device,
                                            Index workspace);

}  // namespace partita::cuda
