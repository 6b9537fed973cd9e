#pragma once

#include "partita/backend/conv_problem.hpp"
#include "partita/base/types.hpp"
#include "src/backend/gpu/cuda/libraries/engine_plan.hpp"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace partita::cuda {

/// A convolution as cuDNN sees it: the problem, and where the elements lie. x and y may be boxes of larger tensors;
/// the weights and the channels of a position are dense. All members are Index, so that the type has no padding bytes
/// and can be hashed as raw memory.
struct ConvCall {
  ConvProblem problem;
  Index dtype = static_cast<Index>(DType::f32);   ///< a DType
  std::array<Index, 4> x_strides{}, y_strides{};  ///< in elements, of the dimensions N D H W
  Index alignment = 16;                           ///< bytes, of the first elements of x, w, y and the bias
  bool operator==(const ConvCall&) const = default;
};

/// Returns a call on tensors that hold no more than the problem needs.
ConvCall dense_call(const ConvProblem& problem, DType dtype);

/// The addresses of a call. For backward_data, `x` is dx and `y` is dy, and so on; the pass decides what is written.
struct ConvPointers {
  void* x = nullptr;
  void* w = nullptr;
  void* y = nullptr;
  void* bias = nullptr;
};

/// A convolution that one of cuDNN's engines runs.
class ConvPlan : public EnginePlan {
 public:
  explicit ConvPlan(EnginePlan plan) : EnginePlan(std::move(plan)) {}
  void run(cudnnHandle_t handle, const ConvPointers& pointers, void* workspace) const;
};

/// Plans for one call, in the order in which cuDNN expects them to be fast.
struct ConvPlans {
  std::vector<ConvPlan> fitting;
  bool more_workspace = false;  ///< a plan that cuDNN expects to be faster than all these needs more than there is
};

/// Takes the last thing that follows the convolution out of a problem, as it can also be computed afterwards: the
/// activation, then the bias. Returns false if nothing follows.
bool simplify(ConvProblem& problem);

/// Returns up to `most` plans for a call on a device. All give the same bits in each run. A problem with a bias or an
/// activation gets plans that compute it, or none. It has none if no engine can run it.
ConvPlans conv_plans(const ConvCall& call, const CudnnDescriptor& device, const EngineLimits& limits, std::size_t most);
/// Returns the plan of the engine with this name, or of the first of conv_plans() if that one cannot run the call.
std::optional<ConvPlan> conv_plan(const ConvCall& call, const CudnnDescriptor& device, const EngineLimits& limits,
                                  std::string_view name);

}  // namespace partita::cuda
