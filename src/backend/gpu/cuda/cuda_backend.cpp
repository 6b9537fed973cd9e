#include "partita/base/error.hpp"
#include "src/backend/common/halves.hpp"
#include "src/backend/gpu/cuda.hpp"
#include "src/backend/gpu/cuda/errors.hpp"
#include "src/backend/gpu/cuda/launcher.hpp"
#include "src/backend/gpu/cuda/libraries/attention_plan.hpp"
#include "src/backend/gpu/cuda/libraries/conv_plan.hpp"
#include "src/backend/gpu/cuda/libraries/product.hpp"
#include "src/backend/gpu/functor_backend/attention.hpp"
#include "src/backend/gpu/functor_backend/convolution.hpp"
#include "src/backend/gpu/functor_backend/elementwise.hpp"
#include "src/backend/gpu/functor_backend/experts.hpp"
#include "src/backend/gpu/functor_backend/losses.hpp"
#include "src/backend/gpu/functor_backend/normalization.hpp"
#include "src/backend/gpu/functor_backend/pooling.hpp"
#include "src/backend/gpu/functor_backend/resampling.hpp"
#include "src/backend/gpu/functor_backend/sequences.hpp"
#include "src/backend/gpu/functor_backend/updates.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

namespace partita {

namespace {

using cuda::ConvCall;
using cuda::ConvPlan;

constexpr Index room_bytes = Index{1} << 20;  // for the sums of blocks

/// Memory of a card that the kernels of one rank use in turns: a room for the sums of our own kernels, then the
/// workspace of the libraries, which is the scratch memory of our own kernels too.
class Workspace {
 public:
  Workspace(CudaDevice& device, Index bytes) : device_(device), bytes_(bytes) {
    if (bytes < 2 * room_bytes) fail("the workspace must have at least 2 MiB, not {} bytes", bytes);
    data_ = static_cast<std::byte*>(device.allocate(static_cast<std::size_t>(bytes)));
    if (data_ == nullptr)
      fail("card {} has no room for a workspace of {} MiB; choose a smaller --workspace", device.card(), bytes >> 20);
  }
  ~Workspace() { device_.release(data_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  std::byte* room() const { return data_; }
  std::byte* libraries() const { return data_ + room_bytes; }
  Index for_libraries() const { return bytes_ - room_bytes; }
  std::span<std::byte> scratch() const { return {libraries(), static_cast<std::size_t>(for_libraries())}; }

 private:
  CudaDevice& device_;
  Index bytes_;
  std::byte* data_ = nullptr;
};

/// Returns where `bytes` of a dw lie in a workspace of the libraries while it is added: at its end.
Index room_for_sum(Index bytes, Index workspace) {
  constexpr Index line = 256;
  const Index room = (bytes + line - 1) / line * line;
  if (room > workspace)
    fail("the weights of a convolution have {} bytes, and the workspace has only {}; choose a larger --workspace",
         bytes, workspace);
  return (workspace - room) / line * line;
}

/// Returns what an engine for a problem must keep to. Gradients of weights leave room for what they are added to.
cuda::EngineLimits limits_of(const ConvProblem& problem, DType dtype, const CudaOptions& options) {
  const Index workspace = options.workspace - room_bytes;
  if (problem.pass != ConvPass::backward_filter) return {options.tf32, workspace};
  Index weights = problem.filters * (problem.channels / problem.groups);
  for (const auto& side : problem.sides) weights *= side.kernel;
  return {options.tf32, room_for_sum(weights * size_of(dtype), workspace)};
}

/// The largest power of two, up to 16, that divides all addresses.
template <class... Pointers>
Index alignment_of(const Pointers*... pointers) {
  std::uintptr_t bits = 16;
  ((bits |= reinterpret_cast<std::uintptr_t>(pointers)), ...);
  return static_cast<Index>(bits & (~bits + 1));
}

/// The address of the first element of a box in a tensor, for all channels.
void* at(const Tensor& tensor, const Box& box) {
  const auto sides = sides_of(box);
  const Index offset = lattice_of(tensor).offset({sides[0].lo, sides[1].lo, sides[2].lo, sides[3].lo});
  return tensor.data() + offset * size_of(tensor.dtype());
}

/// The strides of N D H W. A dimension that the tensor lacks has one element, and may have any stride.
std::array<Index, 4> strides_of(const Tensor& tensor) {
  auto strides = lattice_of(tensor).strides;
  for (Index& stride : strides)
    if (stride == 0) stride = strides[0];
  return strides;
}

/// The algorithms for a problem on dense tensors: the engines that may be tried, the best by cuDNN's estimate first. If
/// one of them uses tensor cores, the others are left out. Half of the batch may be tried too if the best engine of all
/// does not fit.
std::vector<std::string> algorithms_for(ConvProblem problem, DType dtype, const cuda::CudnnDescriptor& device,
                                        const cuda::EngineLimits& limits, std::size_t most) {
  std::vector<std::string> names;
  bool more_workspace = false;
  do {
    const auto plans = cuda::conv_plans(cuda::dense_call(problem, dtype), device, limits, most);
    const bool tensor_cores =
        std::any_of(plans.fitting.begin(), plans.fitting.end(), std::mem_fn(&ConvPlan::tensor_cores));
    for (const auto& plan : plans.fitting)
      if (plan.tensor_cores() == tensor_cores) names.push_back(plan.name());
    more_workspace |= plans.more_workspace;
  } while (names.empty() && cuda::simplify(problem));
  if (more_workspace && problem.batch > 1 && halves_are_exact(problem.pass, dtype)) names.emplace_back(two_halves);
  return names;
}

class CudaBackend final : public FunctorBackend<CudaLauncher> {
 public:
  using Kernels = FunctorBackend<CudaLauncher>;

  CudaBackend(CudaDevice& device, const CudaOptions& options)
      : CudaBackend(device, options, std::make_unique<Workspace>(device, options.workspace)) {}
  ~CudaBackend() override { cuda::cudnn().destroy(handle_); }
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  std::string_view name() const override { return "cuda"; }
  Device& device() const override { return device_; }
  DType chosen_dtype() const override { return options_.dtype; }
  Index workspace() const override { return options_.workspace; }
  std::string describe() const override {
    const CudaVersions versions = cuda_versions();
    const auto cards = cuda_cards();
    return fmt::format("cuda, cuDNN {}, cuBLAS {}, {}, {}{}, workspace {}", versions.cudnn, versions.cublas,
                       cards.at(static_cast<std::size_t>(device_.card())).name, partita::name(options_.dtype),
                       options_.tf32 ? " with TF32" : "", options_.workspace);
  }

  std::vector<std::string_view> algorithms(const ConvProblem& problem) const override {
    if (problem.empty()) return {};
    const auto& names = offered(problem);
    return {names.begin(), names.end()};
  }
  void choose(const ConvProblem& problem, std::string_view algorithm) override {
    const auto& names = offered(problem);
    if (std::find(names.begin(), names.end(), algorithm) == names.end())
      fail("backend 'cuda' has no convolution algorithm named '{}' for {}", algorithm, problem.print());
    chosen_[problem] = algorithm;
  }
  void forget_tried() override {
    for (auto& each : paths_)
      std::erase_if(each.second,
                    [chosen = chosen_for(each.first.problem)](const auto& path) { return path.first != chosen; });
  }

  bool fuses(const Activation& f) const override { return cuda_fuses(f); }

  void conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Tensor& y, Stream stream) override {
    fused_conv_forward(windows, x, w, bias, y, stream);
  }
  void fused_conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Epilogue& epilogue,
                          const Tensor& y, Stream stream) override {
    const ConvGeometry conv(windows, x, w, y);
    const bool whole = conv.out == y.box();  // else the bias and the activation come afterwards, for all of y
    ConvProblem problem(ConvPass::forward, windows, x.box(), w.box(), y.box(), epilogue.bias && whole);
    if (whole && epilogue.activation && fuses(*epilogue.activation)) problem.apply(epilogue.activation);
    const cuda::ConvPointers pointers{at(x, conv.in), w.data(), at(y, conv.out),
                                      whole ? epilogue.bias.data() : nullptr};
    const ConvPath* path = conv.empty() ? nullptr : path_of(problem, x, y, pointers);
    if (path == nullptr) {
      Kernels::conv_forward(windows, x, w, epilogue.bias, y, stream);
      return apply({{}, epilogue.activation}, y, stream);
    }
    if (path->in_halves)
      return run_halves(x, y, [&](const Tensor& inputs, const Tensor& outputs) {
        fused_conv_forward(windows, inputs, w, epilogue, outputs, stream);
      });
    if (!whole) y.zero(stream);
    run(*path, pointers, stream);
    apply({path->adds_bias ? Tensor() : epilogue.bias, path->activates ? std::nullopt : epilogue.activation}, y,
          stream);
  }

  void conv_backward_data(std::span<const Window> windows, const Tensor& dy, const Tensor& w, const Tensor& dx,
                          Stream stream) override {
    const ConvGeometry conv(windows, dx, w, dy);
    const ConvProblem problem(ConvPass::backward_data, windows, dx.box(), w.box(), dy.box(), false);
    const cuda::ConvPointers pointers{at(dx, conv.in), w.data(), at(dy, conv.out)};
    if (conv.empty()) return dx.zero(stream);
    const ConvPath* path = path_of(problem, dx, dy, pointers);
    if (path == nullptr) return Kernels::conv_backward_data(windows, dy, w, dx, stream);
    if (path->in_halves)
      return run_halves(dx, dy, [&](const Tensor& inputs, const Tensor& outputs) {
        conv_backward_data(windows, outputs, w, inputs, stream);
      });
    if (conv.reached != dx.box()) dx.zero(stream);
    run(*path, pointers, stream);
  }

  // Engines need not be able to add to dw. So the new dw goes to the workspace first.
  void conv_backward_filter(std::span<const Window> windows, const Tensor& x, const Tensor& dy, const Tensor& dw,
                            Write write, Stream stream) override {
    const ConvGeometry conv(windows, x, dw, dy);
    if (conv.empty()) return write == Write::over ? dw.zero(stream) : void();
    const ConvProblem problem(ConvPass::backward_filter, windows, x.box(), dw.box(), dy.box(), false);
    void* result = write == Write::over
                       ? dw.data()
                       : workspace_->libraries() + room_for_sum(dw.bytes(), workspace_->for_libraries());
    const cuda::ConvPointers pointers{at(x, conv.in), result, at(dy, conv.out)};
    const ConvPath* path = path_of(problem, x, dy, pointers);
    if (path == nullptr) return Kernels::conv_backward_filter(windows, x, dy, dw, write, stream);
    if (path->in_halves)
      return run_halves(x, dy, [&](const Tensor& inputs, const Tensor& outputs) {
        conv_backward_filter(windows, inputs, outputs, dw, std::exchange(write, Write::add), stream);
      });
    run(*path, pointers, stream);
    if (write == Write::over) return;
    BoxMove sum{.from = result, .to = dw.data(), .from_type = dw.dtype(), .to_type = dw.dtype()};
    sum.combine = Combine::add;
    sum.push(dw.volume(), 1, 1);
    device_.move({&sum, 1}, stream);
  }

  void gemm(DType dtype, bool transpose_a, bool transpose_b, Index m, Index n, Index k, double alpha, const void* a,
            Index lda, const void* b, Index ldb, double beta, void* c, Index ldc, Stream stream) override {
    if (m == 0 || n == 0 || k == 0)
      return Kernels::gemm(dtype, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, stream);
    cuda::ProductCall call = product_call(dtype, transpose_a, transpose_b, {m, n, k}, {lda, ldb, ldc}, {a, b, c});
    call.adds = beta == 0 ? 0 : 1;
    products_.run(call, alpha, beta, {a, b, c}, room(), static_cast<cudaStream_t>(stream.native));
  }
  /// cuBLASLt adds the bias. It could apply ReLU as well, but does not say what that makes of a NaN.
  void fused_gemm(bool transpose_a, bool transpose_b, Index m, Index n, Index k, const void* a, Index lda,
                  const void* b, Index ldb, const Epilogue& epilogue, const Tensor& c, Stream stream) override {
    cuda::ProductCall call =
        product_call(c.dtype(), transpose_a, transpose_b, {m, n, k}, {lda, ldb, n}, {a, b, c.data()});
    call.with_bias = 1;
    call.alignment_c = alignment_of(c.data(), epilogue.bias.data());  // the bias is read as C is written
    if (!epilogue.bias || m == 0 || n == 0 || k == 0 || !products_.can(call, room()))
      return Kernels::fused_gemm(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, epilogue, c, stream);
    products_.run(call, 1, 0, {a, b, c.data(), epilogue.bias.data()}, room(), static_cast<cudaStream_t>(stream.native));
    apply({{}, epilogue.activation}, c, stream);
  }

  void attention_forward(const HeadShape& shape, const Heads& q, const Heads& k, const Heads& v, const Tensor& y,
                         const Tensor& lse, Write write, Stream stream) override {
    if (!run_fused(forward_call(shape, q, k, v, y, lse, write), stream))
      Kernels::attention_forward(shape, q, k, v, y, lse, write, stream);
  }
  void attention_backward(const HeadShape& shape, const Heads& q, const Heads& k, const Heads& v, const Tensor& y,
                          const Tensor& dy, const Tensor& lse, const Heads& dq, const Heads& dk, const Heads& dv,
                          Write write, Stream stream) override {
    if (!run_fused(backward_call(shape, q, k, v, y, dy, lse, dq, dk, dv, write), stream))
      Kernels::attention_backward(shape, q, k, v, y, dy, lse, dq, dk, dv, write, stream);
  }

 private:
  CudaBackend(CudaDevice& device, const CudaOptions& options, std::unique_ptr<Workspace> workspace)
      : Kernels(CudaLauncher(workspace->room(), room_bytes, workspace->scratch())),
        device_(device),
        options_(options),
        workspace_(std::move(workspace)),
        products_(options.tf32),
        properties_(cuda::device_properties(device.card())) {
    device.zero(workspace_->room(), static_cast<std::size_t>(CudaLauncher::arrivals_bytes), {});
    device.finish({});
    cuda::check(cuda::cudnn().create(&handle_), "start cuDNN");
  }

  cuda::Products::Room room() const {
    return {workspace_->libraries(), static_cast<std::size_t>(workspace_->for_libraries())};
  }
  static cuda::ProductCall product_call(DType dtype, bool transpose_a, bool transpose_b, std::array<Index, 3> extents,
                                        std::array<Index, 3> steps, std::array<const void*, 3> data) {
    return {.dtype = static_cast<Index>(dtype),
            .transpose_a = transpose_a ? 1 : 0,
            .transpose_b = transpose_b ? 1 : 0,
            .m = extents[0],
            .n = extents[1],
            .k = extents[2],
            .lda = steps[0],
            .ldb = steps[1],
            .ldc = steps[2],
            .alignment_a = alignment_of(data[0]),
            .alignment_b = alignment_of(data[1]),
            .alignment_c = alignment_of(data[2])};
  }

  /// The algorithms for a problem, which are listed once.
  const std::vector<std::string>& offered(const ConvProblem& problem) const {
    constexpr std::size_t most_tried = 10;  // as many as PyTorch tries
    const auto [known, added] = offered_.try_emplace(problem);
    if (added)
      known->second = algorithms_for(problem, options_.dtype, properties_, limits_of(problem, options_.dtype, options_),
                                     most_tried);
    return known->second;
  }

  /// How a call runs. What no engine does beside the convolution is done afterwards.
  struct ConvPath {
    std::optional<ConvPlan> plan;
    bool adds_bias = false, activates = false;
    bool in_halves = false;  ///< and without a plan
  };

  /// Returns how a call runs; null if no engine can run it.
  const ConvPath* path_of(const ConvProblem& problem, const Tensor& x, const Tensor& y,
                          const cuda::ConvPointers& pointers) {
    const ConvCall call{problem, static_cast<Index>(x.dtype()), strides_of(x), strides_of(y),
                        alignment_of(pointers.x, pointers.w, pointers.y, pointers.bias)};
    const std::string name = chosen_for(problem);
    const auto [known, added] = paths_[call].try_emplace(name);
    if (added) known->second = find_path(call, limits_of(problem, x.dtype(), options_), name);
    return known->second ? &*known->second : nullptr;
  }
  /// The name of the algorithm that was chosen for a problem; "" if none was.
  std::string chosen_for(const ConvProblem& problem) const {
    const auto chosen = chosen_.find(problem);
    return chosen == chosen_.end() ? "" : chosen->second;
  }
  std::optional<ConvPath> find_path(ConvCall call, const cuda::EngineLimits& limits, const std::string& name) const {
    if (name == two_halves) return ConvPath{.plan = {}, .in_halves = true};
    do {
      if (auto plan = cuda::conv_plan(call, properties_, limits, name))
        return ConvPath{std::move(plan), call.problem.with_bias != 0, call.problem.then != 0};
    } while (cuda::simplify(call.problem));
    if (call.problem.batch > 1 && halves_are_exact(call.problem.pass, static_cast<DType>(call.dtype)) &&
        cuda::conv_plans(call, properties_, limits, 1).more_workspace)
      return ConvPath{.plan = {}, .in_halves = true};
    return std::nullopt;
  }
  void run(const ConvPath& path, cuda::ConvPointers pointers, Stream stream) {
    if (!path.adds_bias) pointers.bias = nullptr;
    use(stream);
    path.plan->run(handle_, pointers, workspace_->libraries());
  }
  void use(Stream stream) {
    cuda::check(cuda::cudnn().set_stream(handle_, static_cast<cudaStream_t>(stream.native)), "use a stream");
  }

  /// Runs attention by cuDNN. Returns false if it cannot.
  bool run_fused(AttentionCall call, Stream stream) {
    call.traits.cudnn = static_cast<Index>(cuda::cudnn().get_version());
    if (!why_not_fused(call.traits).empty()) return false;
    const AttentionGeometry& geometry = call.geometry;
    const auto [known, added] = attention_paths_.try_emplace(geometry);
    if (added) known->second = cuda::attention_path(geometry, properties_, workspace_->for_libraries());
    const auto& path = known->second;
    if (!path) return false;
    use(stream);
    for (const AttentionRun& run : attention_runs(call, path->part, workspace_->libraries())) {
      if (geometry.backward != 0) device_.move({&run.lse, 1}, stream);
      path->run(handle_, run, workspace_->libraries());
      if (geometry.backward == 0) device_.move({&run.lse, 1}, stream);
    }
    return true;
  }

  CudaDevice& device_;
  CudaOptions options_;
  std::unique_ptr<Workspace> workspace_;
  cuda::Products products_;
  cuda::CudnnDescriptor properties_;
  cudnnHandle_t handle_ = nullptr;
  mutable std::unordered_map<ConvProblem, std::vector<std::string>, ConvProblemHash> offered_;
  std::unordered_map<ConvProblem, std::string, ConvProblemHash> chosen_;
  // by call and name: making a plan takes 11 to 15 ms
  std::unordered_map<ConvCall, std::map<std::string, std::optional<ConvPath>>, HashWords> paths_;
  std::unordered_map<AttentionGeometry, std::optional<cuda::AttentionPath>, HashWords> attention_paths_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(CudaDevice& device, const CudaOptions& options) {
  if (options.dtype == DType::i32) fail("backend 'cuda' computes in f64, f32, bf16 and f16, not in i32");
  return std::make_unique<CudaBackend>(device, options);
}

bool cuda_fuses(const Activation& f) {
  return f.kind == Activation::Kind::relu || f.kind == Activation::Kind::sigmoid || f.kind == Activation::Kind::tanh;
}

std::vector<CudnnUse> cudnn_uses(std::span<const ConvProblem> problems, const CudaOptions& options,
                                 const std::string& properties) {
  if (properties.empty() && cuda_cards().empty()) fail("this machine has no card whose engines could be listed");
  const auto device = properties.empty() ? cuda::device_properties(0) : cuda::device_properties(properties);
  const cuda::EngineLimits unlimited{options.tf32, std::numeric_limits<Index>::max()};
  const auto runs = [&](ConvProblem problem) {
    for (; !problem.empty(); problem = problem.halves().front()) {
      const auto limits = limits_of(problem, options.dtype, options);
      const auto names = algorithms_for(problem, options.dtype, device, limits, 1);
      if (names.empty()) return false;
      if (names.front() != two_halves) break;
    }
    return true;
  };
  const auto workspace = [&](ConvProblem problem) -> Index {
    if (problem.empty()) return 0;
    do {
      const auto plans = cuda::conv_plans(cuda::dense_call(problem, options.dtype), device, unlimited, 1);
      if (!plans.fitting.empty()) return plans.fitting.front().workspace();
    } while (cuda::simplify(problem));
    return 0;
  };
  std::vector<CudnnUse> uses;
  for (const ConvProblem& problem : problems) {
    const Index needed = workspace(problem);
    uses.push_back({runs(problem), needed > limits_of(problem, options.dtype, options).workspace, needed});
  }
  return uses;
}

}  // namespace partita
