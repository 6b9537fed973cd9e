#include "src/backend/gpu/cuda/libraries/conv_plan.hpp"

#include "partita/base/error.hpp"
#include "src/base/plain_text.hpp"

#include <algorithm>

namespace partita::cuda {

namespace {

using Dims = std::vector<std::int64_t>;

/// The numbers by which a call's addresses find their tensors.
enum TensorId : std::int64_t { id_x = 1, id_w, id_y, id_bias, id_sum, id_biased };

cudnnDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return CUDNN_DATA_DOUBLE;
    case DType::f32: return CUDNN_DATA_FLOAT;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    case DType::f16: return CUDNN_DATA_HALF;
    case DType::i32: break;
  }
  broken("a convolution must have numbers with fractions");
}
cudnnDataType_t sums_of(DType dtype) { return dtype == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT; }

/// The place in ConvProblem::sides of cuDNN's first spatial dimension: it has two at least.
std::size_t first_side(const ConvProblem& problem) { return problem.spatial == 3 ? 0 : 1; }

/// Returns {front..., side.*field for each spatial dimension}.
Dims dims(const ConvProblem& problem, Dims front, Index ConvProblem::Side::*field) {
  for (std::size_t d = first_side(problem); d < 3; ++d) front.push_back(problem.sides[d].*field);
  return front;
}

/// The strides of N C ... from those of N D H W; channels are neighbors.
Dims strides(const ConvProblem& problem, const std::array<Index, 4>& of) {
  Dims all{of[0], 1};
  for (std::size_t d = first_side(problem); d < 3; ++d) all.push_back(of[d + 1]);
  return all;
}

/// The strides of a dense array with channels last.
Dims dense_strides(const Dims& dims) {
  Dims all(dims.size());
  all[1] = 1;
  Index step = dims[1];
  for (std::size_t d = dims.size(); d-- > 2; step *= dims[d]) all[d] = step;
  all[0] = step;
  return all;
}

/// The graph of one call: its tensors and operations.
class ConvGraph {
 public:
  explicit ConvGraph(const ConvCall& call) : call_(call), p_(call.problem), dtype_(static_cast<DType>(call.dtype)) {}

  CudnnDescriptor make() const {
    CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations());
    return graph.finalize();
  }

 private:
  using Side = ConvProblem::Side;

  CudnnDescriptor tensor(TensorId id, const Dims& extents, const Dims& steps, cudnnDataType_t type) const {
    CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, static_cast<std::int64_t>(id))
        .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, extents)
        .set(CUDNN_ATTR_TENSOR_STRIDES, steps)
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, static_cast<std::int64_t>(call_.alignment));
    if (id == id_sum || id == id_biased) tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
    return tensor.finalize();
  }
  CudnnDescriptor x() const {
    return tensor(id_x, dims(p_, {p_.batch, p_.channels}, &Side::in), strides(p_, call_.x_strides), type_of(dtype_));
  }
  CudnnDescriptor y() const {
    return tensor(id_y, dims(p_, {p_.batch, p_.filters}, &Side::out), strides(p_, call_.y_strides), type_of(dtype_));
  }
  /// cuDNN finds the number of groups from the channels that a filter reads.
  CudnnDescriptor w() const {
    const Dims extents = dims(p_, {p_.filters, p_.channels / p_.groups}, &Side::kernel);
    return tensor(id_w, extents, dense_strides(extents), type_of(dtype_));
  }

  CudnnDescriptor windows() const {
    CudnnDescriptor conv(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    return conv.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, sums_of(dtype_))
        .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
        .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<std::int64_t>(3 - first_side(p_)))
        .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, dims(p_, {}, &Side::dilation))
        .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, dims(p_, {}, &Side::stride))
        .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, dims(p_, {}, &Side::pad_lo))
        .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, dims(p_, {}, &Side::pad_hi))
        .finalize();
  }

  std::vector<CudnnDescriptor> operations() const {
    switch (p_.pass) {
      case ConvPass::forward: return forward_and_more();
      case ConvPass::backward_data:
        return {CudnnDescriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
                    .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, windows())
                    .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0)
                    .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0.0)
                    .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, w())
                    .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, x())
                    .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, y())
                    .finalize()};
      case ConvPass::backward_filter:
        return {CudnnDescriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR)
                    .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, windows())
                    .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.0)
                    .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 0.0)
                    .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, w())
                    .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x())
                    .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, y())
                    .finalize()};
    }
    broken("unknown pass");
  }

  CudnnDescriptor forward(const CudnnDescriptor& result) const {
    return CudnnDescriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, windows())
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x())
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w())
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, result)
        .finalize();
  }

  /// What follows the convolution. The numbers between its steps stay in registers.
  std::vector<CudnnDescriptor> forward_and_more() const {
    const bool adds = p_.with_bias != 0, applies = p_.then != 0;
    const CudnnDescriptor sum = adds || applies ? between(id_sum) : y(),
                          biased = adds && applies ? between(id_biased) : y();
    std::vector<CudnnDescriptor> all{forward(sum)};
    if (adds) {
      Dims extents(static_cast<std::size_t>(p_.spatial == 3 ? 5 : 4), 1);
      extents[1] = p_.filters;
      const CudnnDescriptor bias = tensor(id_bias, extents, dense_strides(extents), type_of(dtype_));
      all.push_back(pointwise(CUDNN_POINTWISE_ADD, sum, biased, &bias));
    }
    if (applies) all.push_back(pointwise(mode_of(*p_.activation()), adds ? biased : sum, y()));
    return all;
  }
  /// A tensor like y that is never stored.
  CudnnDescriptor between(TensorId id) const {
    return tensor(id, dims(p_, {p_.batch, p_.filters}, &Side::out), strides(p_, call_.y_strides), sums_of(dtype_));
  }
  static cudnnPointwiseMode_t mode_of(const Activation& f) {
    switch (f.kind) {
      case Activation::Kind::relu: return CUDNN_POINTWISE_RELU_FWD;
      case Activation::Kind::sigmoid: return CUDNN_POINTWISE_SIGMOID_FWD;
      case Activation::Kind::tanh: return CUDNN_POINTWISE_TANH_FWD;
      default: broken("a convolution cannot apply this activation");
    }
  }
  CudnnDescriptor pointwise(cudnnPointwiseMode_t mode, const CudnnDescriptor& from, const CudnnDescriptor& to,
                            const CudnnDescriptor* other = nullptr) const {
    CudnnDescriptor function(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    function.set(CUDNN_ATTR_POINTWISE_MODE, mode).set(CUDNN_ATTR_POINTWISE_MATH_PREC, sums_of(dtype_)).finalize();
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, from);
    if (other != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *other);
    return operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to).finalize();
  }

  const ConvCall& call_;
  const ConvProblem& p_;
  DType dtype_;
};

/// The numbers of a name: the engine's index, then a type and a value for each knob. Throws Error for another text.
std::vector<std::int64_t> numbers_of(std::string_view name) {
  constexpr std::string_view prefix = "engine ";
  if (!name.starts_with(prefix)) fail("'{}' names no engine", name);
  std::vector<std::int64_t> numbers;
  for (std::string_view left = name.substr(prefix.size()); !left.empty();) {
    const auto end = std::min(left.find_first_of(" ="), left.size());
    const auto number = parse_number<std::int64_t>(left.substr(0, end));
    if (!number) fail("'{}' names no engine", name);
    numbers.push_back(*number);
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  if (numbers.size() % 2 == 0) fail("'{}' names no engine", name);
  return numbers;
}

/// Returns the configuration that a name describes for a graph. cuDNN's own list is no help here: for other strides it
/// proposes other engines. Throws Error if cuDNN knows no such engine or setting.
CudnnDescriptor config_of(std::string_view name, const CudnnDescriptor& graph, const CudnnDescriptor& device) {
  const auto numbers = numbers_of(name);
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINE_DEVICEPROP, device)
      .set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, numbers.front())
      .finalize();
  std::vector<CudnnDescriptor> knobs;
  for (std::size_t i = 1; i < numbers.size(); i += 2) {
    CudnnDescriptor knob(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, static_cast<cudnnBackendKnobType_t>(numbers[i]))
        .set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, numbers[i + 1]);
    knobs.push_back(knob.finalize());
  }
  CudnnDescriptor config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  config.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (!knobs.empty()) config.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knobs);
  return config.finalize();
}

/// Adds the plan of an engine, if cuDNN can make it and the workspace suffices.
void add_plan(ConvPlans& plans, const std::string& name, const CudnnDescriptor& config, const CudnnDescriptor& device,
              const EngineLimits& limits) {
  auto plan = engine_plan(name, config, device);
  if (!plan) return;
  if (plan->workspace() <= limits.workspace)
    plans.fitting.emplace_back(std::move(*plan));
  else if (plans.fitting.empty())
    plans.more_workspace = true;
}

}  // namespace

bool simplify(ConvProblem& problem) {
  if (problem.then == 0 && problem.with_bias == 0) return false;
  (problem.then != 0 ? problem.then : problem.with_bias) = 0;
  return true;
}

ConvCall dense_call(const ConvProblem& problem, DType dtype) {
  ConvCall call{.problem = problem, .dtype = static_cast<Index>(dtype)};
  const auto fill = [&](std::array<Index, 4>& steps, Index channels, Index ConvProblem::Side::*extent) {
    Index step = channels;
    for (std::size_t d = 3; d > 0; --d) {
      steps[d] = step;
      step *= problem.sides[d - 1].*extent;
    }
    steps[0] = step;
  };
  fill(call.x_strides, problem.channels, &ConvProblem::Side::in);
  fill(call.y_strides, problem.filters, &ConvProblem::Side::out);
  return call;
}

void ConvPlan::run(cudnnHandle_t handle, const ConvPointers& pointers, void* workspace) const {
  std::vector<std::int64_t> ids{id_x, id_w, id_y};
  std::vector<void*> data{pointers.x, pointers.w, pointers.y};
  if (pointers.bias != nullptr) {
    ids.push_back(id_bias);
    data.push_back(pointers.bias);
  }
  execute(handle, ids, data, workspace, "run a convolution");
}

ConvPlans conv_plans(const ConvCall& call, const CudnnDescriptor& device, const EngineLimits& limits,
                     std::size_t most) {
  ConvPlans plans;
  const auto& fitting = plans.fitting;
  for (const CudnnDescriptor& config : proposed(ConvGraph(call).make(), device)) {
    if (fitting.size() == most) break;
    if (!keeps_to(engine_of(config), static_cast<DType>(call.dtype), limits)) continue;
    const std::string name = name_of(config);
    const bool known =
        std::any_of(fitting.begin(), fitting.end(), [&](const auto& plan) { return plan.name() == name; });
    if (!known) add_plan(plans, name, config, device, limits);
  }
  return plans;
}

std::optional<ConvPlan> conv_plan(const ConvCall& call, const CudnnDescriptor& device, const EngineLimits& limits,
                                  std::string_view name) {
  ConvPlans plans;
  if (!name.empty()) try {
      const CudnnDescriptor config = config_of(name, ConvGraph(call).make(), device);
      if (keeps_to(engine_of(config), static_cast<DType>(call.dtype), limits))
        add_plan(plans, std::string(name), config, device, limits);
    } catch (const Error&) {
      // cuDNN refuses this engine for the call, so that another one runs it.
    }
  if (plans.fitting.empty()) plans = conv_plans(call, device, limits, 1);
  return plans.fitting.empty() ? std::nullopt : std::optional(plans.fitting.front());
}

}  // namespace partita::cuda
