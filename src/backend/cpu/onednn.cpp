#include "partita/base/error.hpp"
#include "src/backend/cpu/reference.hpp"

#if PARTITA_HAVE_ONEDNN

#include "src/backend/common/groups.hpp"
#include "src/backend/common/scratch.hpp"
#include "src/backend/cpu/lowered.hpp"
#include "src/backend/cpu/onednn_conv.hpp"
#include "src/backend/cpu/onednn_product.hpp"

#include <dnnl.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>

// From libgomp, the OpenMP runtime that libdnnl uses. They are declared here because clang's <omp.h> belongs to another
// runtime.
extern "C" void omp_set_num_threads(int);
/// Calls run(data) on so many threads at once, of which the calling one is the first. The others wait between calls.
extern "C" void GOMP_parallel(void (*run)(void*), void* data, unsigned threads, unsigned flags);

namespace partita {

namespace {

// Convolution algorithms: oneDNN's own, and lowered convolutions with one of oneDNN's two matrix products.
constexpr std::string_view nhwc = "nhwc", blocked = "blocked", winograd = "winograd", by_sgemm = "gemm",
                           by_matmul = "matmul";

/// Returns `tensor` restricted to `box`: the tensor itself, or a dense copy. Strided views would take oneDNN's slow
/// kernel.
Tensor dense(const Tensor& tensor, const Box& box) { return tensor.box() == box ? tensor : scratch_copy(tensor, box); }

/// How a convolution is computed: by a primitive made for it, or by matrix products.
struct ConvPath {
  std::unique_ptr<OneDnnConv> conv = nullptr;
  bool matmul = false;
};

std::shared_ptr<const ConvPath> make_path(const ConvProblem& problem, std::string_view algorithm) {
  const auto made = [](ConvPath path) { return std::make_shared<const ConvPath>(std::move(path)); };
  if (algorithm == nhwc) return made({make_nhwc_conv(problem)});
  if (algorithm == blocked) return made({make_blocked_conv(problem)});
  if (algorithm == winograd) return made({make_winograd_conv(problem)});
  if (algorithm == by_sgemm) return made({});
  if (algorithm == by_matmul) return made({.matmul = true});
  fail("backend 'onednn' has no convolution algorithm named '{}'", algorithm);
}

/// The matrix product of a lowered convolution: oneDNN's matmul primitive or its sgemm function.
struct Product {
  OneDnnMatmul& matmul;
  bool takes_matmul;
  template <class... Arguments>
  void operator()(const Arguments&... arguments) const {
    takes_matmul ? matmul(arguments...) : onednn_sgemm(arguments...);
  }
};

/// The reference backend with oneDNN's convolutions and matrix products.
class OneDnnBackend : public ReferenceBackend {
 public:
  explicit OneDnnBackend(int threads) : threads_(threads) {}
  std::string_view name() const override { return "onednn"; }
  std::string describe() const override {
    const auto& version = *dnnl_version();
    return fmt::format("onednn {}.{}.{} ({}), instructions {}", version.major, version.minor, version.patch,
                       version.hash, static_cast<int>(dnnl_get_effective_cpu_isa()));
  }

  void check(DType dtype) const override {
    if (dtype != DType::f32)
      fail("backend 'onednn' computes in f32 only, not in {}; use backend 'reference'", partita::name(dtype));
  }

  std::vector<std::string_view> algorithms(const ConvProblem& problem) const override {
    if (problem.empty()) return {};
    const auto& sides = problem.sides;
    const bool points = problem.groups == 1 &&
                        std::all_of(sides.begin(), sides.end(), [](const auto& side) { return side.kernel == 1; });
    omp_set_num_threads(threads_);
    std::vector<std::string_view> paths{blocked};
    if (has_winograd(problem)) paths.push_back(winograd);
    if (has_fast_nhwc(problem)) paths.insert(paths.begin(), nhwc);
    // The better of the two by measurement comes first: the primitive where it transposes w (forward), else the
    // function.
    std::vector<std::string_view> products{by_sgemm, by_matmul};
    if (problem.pass == ConvPass::forward) std::swap(products[0], products[1]);
    const auto place = points && paths.front() == nhwc ? paths.begin() : paths.end();
    paths.insert(place, products.begin(), products.end());
    return paths;
  }

  void choose(const ConvProblem& problem, std::string_view algorithm) override {
    omp_set_num_threads(threads_);
    if (!(problem == tried_)) forget_tried();
    tried_ = problem;
    auto& path = paths_[std::string(algorithm)];
    if (path == nullptr) path = make_path(problem, algorithm);
    chosen_[problem] = path;
  }

  void forget_tried() override {
    paths_.clear();
    room_ = Scratch<float>(0);
    room_elements_ = 0;
  }

  // y = conv(x, w) + bias
  void conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Tensor& y, Stream) override {
    const ConvGeometry conv = prepare(windows, x, w, y);
    const bool partly = conv.empty() || conv.out != y.box();
    if (partly) fill_bias(bias, y);
    if (conv.empty()) return;
    const ConvPath& path = find({ConvPass::forward, windows, x.box(), w.box(), y.box(), static_cast<bool>(bias)});
    if (path.conv == nullptr) return lowered(windows, x, w, bias, y, Product{matmul_, path.matmul});
    const Tensor result = partly ? scratch_tensor(y, conv.out) : y;
    path.conv->run(dense(x, conv.in).as<float>(), w.as<float>(), bias ? bias.as<float>() : nullptr, result.as<float>(),
                   room(*path.conv));
    if (partly) copy_box(result, y, conv.out, {});
  }

  // dx = conv'(dy, w)
  void conv_backward_data(std::span<const Window> windows, const Tensor& dy, const Tensor& w, const Tensor& dx,
                          Stream) override {
    const ConvGeometry conv = prepare(windows, dx, w, dy);
    if (conv.empty()) return dx.zero({});
    const ConvPath& path = find({ConvPass::backward_data, windows, dx.box(), w.box(), dy.box(), false});
    if (path.conv == nullptr)
      return grouped_backward_data(conv.groups, dy, w, dx, [&](const Tensor& gy, const Tensor& gw, const Tensor& gx) {
        lowered_backward_data<float>(ConvGeometry(windows, gx, gw, gy), gy, gw, gx, Product{matmul_, path.matmul});
      });
    const bool partly = conv.in != dx.box();
    if (partly) dx.zero({});
    const Tensor result = partly ? scratch_tensor(dx, conv.in) : dx;
    path.conv->run(dense(dy, conv.out).as<float>(), w.as<float>(), nullptr, result.as<float>(), room(*path.conv));
    if (partly) copy_box(result, dx, conv.in, {});
  }

  // dw = conv'(x, dy), or dw += conv'(x, dy)
  void conv_backward_filter(std::span<const Window> windows, const Tensor& x, const Tensor& dy, const Tensor& dw,
                            Write write, Stream) override {
    const ConvGeometry conv = prepare(windows, x, dw, dy);
    if (conv.empty()) return write == Write::over ? dw.zero({}) : void();
    const ConvPath& path = find({ConvPass::backward_filter, windows, x.box(), dw.box(), dy.box(), false});
    if (path.conv == nullptr)
      return grouped_backward_filter(conv.groups, x, dy, dw, [&](const Tensor& gx, const Tensor& gy, const Tensor& gw) {
        lowered_backward_filter<float>(ConvGeometry(windows, gx, gw, gy), gx, gy, gw, write,
                                       Product{matmul_, path.matmul});
      });
    path.conv->run(dense(x, conv.in).as<float>(), dense(dy, conv.out).as<float>(), nullptr, dw.as<float>(),
                   room(*path.conv), write);
  }

  // The primitive adds the bias while the sums are in its registers.
  void fused_gemm(bool transpose_a, bool transpose_b, Index m, Index n, Index k, const void* a, Index lda,
                  const void* b, Index ldb, const Epilogue& epilogue, const Tensor& c, Stream stream) override {
    if (!epilogue.bias || transpose_a || !transpose_b || m == 0 || n == 0 || k == 0)
      return Backend::fused_gemm(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, epilogue, c, stream);
    check(c.dtype());
    omp_set_num_threads(threads_);
    matmul_(transpose_a, transpose_b, m, n, k, static_cast<const float*>(a), lda, static_cast<const float*>(b), ldb, 0,
            c.as<float>(), n, epilogue.bias.as<float>());
    apply({{}, epilogue.activation}, c, stream);
  }

  void gemm(DType dtype, bool transpose_a, bool transpose_b, Index m, Index n, Index k, double alpha, const void* a,
            Index lda, const void* b, Index ldb, double beta, void* c, Index ldc, Stream stream) override {
    check(dtype);
    if (m == 0 || n == 0 || k == 0)  // oneDNN returns early and would not apply beta
      return ReferenceBackend::gemm(dtype, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc,
                                    stream);
    omp_set_num_threads(threads_);
    const auto* left = static_cast<const float*>(a);
    const auto* right = static_cast<const float*>(b);
    auto* result = static_cast<float*>(c);
    // Measured: the primitive is up to 1.4 times faster with few rows (a linear layer's forward pass), and up to 1.25
    // times where the rows of a transposed A are 4 KiB or more apart (its gradient of wide weights). Elsewhere the
    // function is.
    constexpr Index far = 1024;
    const bool takes_matmul = transpose_a ? !transpose_b && lda >= far : transpose_b;
    if (takes_matmul && (beta == 0 || beta == 1) && alpha == 1)
      return matmul_(transpose_a, transpose_b, m, n, k, left, lda, right, ldb, static_cast<float>(beta), result, ldc);
    onednn_sgemm(transpose_a, transpose_b, m, n, k, left, lda, right, ldb, static_cast<float>(beta), result, ldc,
                 static_cast<float>(alpha));
  }

 protected:
  void in_parallel(Index count, const std::function<void(Backend& products, Index i)>& work) override {
    while (helpers_.size() < static_cast<std::size_t>(threads_)) helpers_.push_back(std::make_unique<OneDnnBackend>(1));
    Shared shared{count, work, helpers_, std::vector<std::exception_ptr>(helpers_.size())};
    const auto threads = static_cast<unsigned>(std::min<Index>(threads_, count));
    if (threads == 1) shared.take(0);
    if (threads > 1) GOMP_parallel([](void* all) { static_cast<Shared*>(all)->take(); }, &shared, threads, 0);
    for (const auto& error : shared.errors)
      if (error) std::rethrow_exception(error);
  }

 private:
  /// Work that threads share: each takes the next part when it is done with one.
  struct Shared {
    Index count;
    const std::function<void(Backend&, Index)>& work;
    const std::vector<std::unique_ptr<OneDnnBackend>>& helpers;
    std::vector<std::exception_ptr> errors;  // of each thread
    std::atomic<Index> next = 0;
    std::atomic<std::size_t> started = 0;

    void take() { take(started++); }
    void take(std::size_t thread) {
      try {
        for (Index i = next++; i < count; i = next++) work(*helpers[thread], i);
      } catch (...) {
        errors[thread] = std::current_exception();  // none may leave a thread of libgomp
      }
    }
  };

  ConvGeometry prepare(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Tensor& y) const {
    check(x.dtype());
    omp_set_num_threads(threads_);
    return {windows, x, w, y};
  }

  /// y = conv(x, w) + bias as matrix products
  void lowered(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y,
               const Product& product) {
    const Index groups = ConvGeometry(windows, x, w, y).groups;
    grouped_forward(groups, x, w, bias, y, [&](const Tensor& gx, const Tensor& gw, const Tensor& gb, const Tensor& gy) {
      const ConvGeometry conv(windows, gx, gw, gy);
      if (groups > 1 && conv.out != gy.box()) fill_bias(gb, gy);
      lowered_forward<float>(conv, gx, gw, gb, gy, product);
    });
  }

  /// Scratch memory for `conv`. All convolutions share one buffer, as large as the largest of them needs.
  float* room(const OneDnnConv& conv) {
    if (conv.room() > room_elements_) {
      room_ = Scratch<float>(0);  // frees the old buffer before the new one is allocated
      room_ = Scratch<float>(room_elements_ = conv.room());
    }
    return room_.data();
  }

  /// Returns how `problem` is computed. Takes the default if no algorithm was chosen.
  const ConvPath& find(const ConvProblem& problem) {
    const auto found = chosen_.find(problem);
    if (found != chosen_.end()) return *found->second;
    choose(problem, algorithms(problem).front());
    return find(problem);
  }

  int threads_;
  OneDnnMatmul matmul_;
  std::vector<std::unique_ptr<OneDnnBackend>> helpers_;  // one for each thread
  std::unordered_map<ConvProblem, std::shared_ptr<const ConvPath>, ConvProblemHash> chosen_;
  ConvProblem tried_;  // the last problem that choose() was called for; paths_ holds all paths made for it
  std::map<std::string, std::shared_ptr<const ConvPath>, std::less<>> paths_;
  Scratch<float> room_{0};
  Index room_elements_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_onednn_backend(int threads) {
  if (threads < 1) fail("the number of threads must be at least 1, not {}", threads);
  return std::make_unique<OneDnnBackend>(threads);
}

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace partita

#else

namespace partita {

std::unique_ptr<Backend> make_onednn_backend(int) {
  fail(
      "this build lacks oneDNN: install libdnnl-dev and configure again with -Donednn=enabled, or use backend "
      "'reference'");
}

std::string onednn_version() { return ""; }

}  // namespace partita

#endif
