#include "src/backend/gpu/cuda/libraries/engine_plan.hpp"

#include "partita/base/error.hpp"
#include "src/backend/gpu/cuda/errors.hpp"

#include <algorithm>

namespace partita::cuda {

namespace {

std::vector<cudnnBackendNumericalNote_t> notes_of(const CudnnDescriptor& engine) {
  return engine.get<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
}

}  // namespace

std::vector<CudnnDescriptor> proposed(const CudnnDescriptor& graph, const CudnnDescriptor& device) {
  std::vector<CudnnDescriptor> all;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
        .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode)
        .set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
    if (!heuristics.try_finalize()) continue;
    const auto found = heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

CudnnDescriptor engine_of(const CudnnDescriptor& config) {
  return config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR).at(0);
}

std::string name_of(const CudnnDescriptor& config) {
  const CudnnDescriptor engine = engine_of(config);
  std::string name = fmt::format("engine {}", engine.get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX).at(0));
  // cuDNN says that there are 0 choices if it is asked for their number alone.
  for (const auto& knob :
       config.get(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS))
    name += fmt::format(" {}={}",
                        static_cast<int>(knob.get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE).at(0)),
                        knob.get<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE).at(0));
  return name;
}

bool keeps_to(const CudnnDescriptor& engine, DType dtype, const EngineLimits& limits) {
  const auto notes = notes_of(engine);
  return std::none_of(notes.begin(), notes.end(), [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION: return true;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: return dtype == DType::f32 && !limits.tf32;
      default: return false;
    }
  });
}

std::optional<EnginePlan> engine_plan(const std::string& name, const CudnnDescriptor& config,
                                      const CudnnDescriptor& device) {
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config).set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
  if (!plan.try_finalize()) return std::nullopt;
  const Index workspace = plan.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE).at(0);
  const auto notes = notes_of(engine_of(config));
  const bool tensor_cores = std::find(notes.begin(), notes.end(), CUDNN_NUMERICAL_NOTE_TENSOR_CORE) != notes.end();
  return EnginePlan(name, plan, workspace, tensor_cores);
}

void EnginePlan::execute(cudnnHandle_t handle, const std::vector<std::int64_t>& ids, const std::vector<void*>& data,
                         void* workspace, std::string_view what) const {
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, data)
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
      .finalize();
  check(cudnn().execute(handle, plan_.native(), pack.native()), what);
}

CudnnDescriptor device_properties(int card) {
  CudnnDescriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  return device.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, std::int32_t{card}).finalize();
}

CudnnDescriptor device_properties(const std::string& json) {
  CudnnDescriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  const std::span<const char> text(json.c_str(), json.size() + 1);
  return device.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, text).finalize();
}

std::string print_properties(const CudnnDescriptor& properties) {
  const auto text = properties.get<char>(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
  return std::string(text.begin(), std::find(text.begin(), text.end(), '\0'));
}

}  // namespace partita::cuda
