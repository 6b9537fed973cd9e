#pragma once

#include "partita/base/types.hpp"
#include "src/backend/gpu/cuda/libraries/cudnn_descriptor.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace partita::cuda {

/// What engines must keep to.
struct EngineLimits {
  bool tf32 = false;    ///< f32 may be rounded to TF32 in products
  Index workspace = 0;  ///< bytes
};

/// What one of cuDNN's engines runs.
class EnginePlan {
 public:
  EnginePlan(std::string name, CudnnDescriptor plan, Index workspace, bool tensor_cores)
      : name_(std::move(name)), plan_(std::move(plan)), workspace_(workspace), tensor_cores_(tensor_cores) {}
  /// The engine and its settings, e.g. "engine 40 2=3 10=1". The same engine has the same name for other tensors.
  const std::string& name() const { return name_; }
  Index workspace() const { return workspace_; }       ///< bytes
  bool tensor_cores() const { return tensor_cores_; }  ///< it computes on tensor cores
  /// Enqueues the plan in the stream of the handle, with the addresses of the tensors that have these numbers. `what`
  /// completes the sentence "cuDNN cannot ...".
  void execute(cudnnHandle_t handle, const std::vector<std::int64_t>& ids, const std::vector<void*>& data,
               void* workspace, std::string_view what) const;

 private:
  std::string name_;
  CudnnDescriptor plan_;
  Index workspace_;
  bool tensor_cores_;
};

/// Returns the properties of a card of this machine, by its number, or of one that they describe as JSON.
CudnnDescriptor device_properties(int card);
CudnnDescriptor device_properties(const std::string& json);
/// Returns the properties as JSON.
std::string print_properties(const CudnnDescriptor& properties);

/// Returns the engine configurations that cuDNN proposes for a graph, the fastest first by its own estimate.
std::vector<CudnnDescriptor> proposed(const CudnnDescriptor& graph, const CudnnDescriptor& device);
CudnnDescriptor engine_of(const CudnnDescriptor& config);
/// Returns what EnginePlan::name() will be.
std::string name_of(const CudnnDescriptor& config);
/// True if the engine gives the same bits in each run, and rounds nothing but what the limits allow.
bool keeps_to(const CudnnDescriptor& engine, DType dtype, const EngineLimits& limits);
/// Returns the plan of a configuration with this name; none if cuDNN does not support it.
std::optional<EnginePlan> engine_plan(const std::string& name, const CudnnDescriptor& config,
                                      const CudnnDescriptor& device);

}  // namespace partita::cuda
