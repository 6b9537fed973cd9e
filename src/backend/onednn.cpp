#include "partita/base/error.hpp"
#include "reference.hpp"

#if PARTITA_HAVE_ONEDNN

#include "groups.hpp"
#include "lowered.hpp"
#include "onednn_conv.hpp"
#include "onednn_product.hpp"

#include <algorithm>
#include <unordered_map>

/// Of the OpenMP runtime that libdnnl runs on (libgomp); declared here since clang's <omp.h> belongs to another one.
extern "C" void omp_set_num_threads(int);

namespace partita {

namespace {

constexpr std::string_view nhwc = "nhwc", blocked = "blocked", winograd = "winograd", gemm_algorithm = "gemm";

/// `tensor` over `box`: itself, or a dense copy, since strided views fall to oneDNN's slow kernel.
Tensor dense(const Tensor& tensor, const Box& box) {
  return tensor.box() == box ? tensor : extract(tensor, box, MemoryClass::workspace);
}

/// The reference with oneDNN's convolutions and matrix products.
class OneDnnBackend : public ReferenceBackend {
 public:
  explicit OneDnnBackend(int threads) : threads_(threads) {}
  std::string_view name() const override { return "onednn"; }

  void check(DType dtype) const override {
    if (dtype != DType::f32)
      fail("backend 'onednn' computes in f32, not in {}; backend 'reference' can", partita::name(dtype));
  }

  std::vector<std::string_view> algorithms(const ConvProblem& problem) const override {
    if (problem.empty()) return {};
    const auto& sides = problem.sides;
    const bool points = problem.groups == 1 &&
                        std::all_of(sides.begin(), sides.end(), [](const auto& side) { return side.kernel == 1; });
    omp_set_num_threads(threads_);
    if (!has_fast_nhwc(problem)) return {blocked, gemm_algorithm};
    if (points) return {gemm_algorithm, nhwc, blocked};
    if (has_winograd(problem)) return {nhwc, blocked, winograd, gemm_algorithm};
    return {nhwc, blocked, gemm_algorithm};
  }

  void choose(const ConvProblem& problem, std::string_view algorithm) override {
    omp_set_num_threads(threads_);
    auto& conv = convs_[problem];
    if (algorithm == nhwc)
      conv = make_nhwc_conv(problem);
    else if (algorithm == blocked)
      conv = make_blocked_conv(problem);
    else if (algorithm == winograd)
      conv = make_winograd_conv(problem);
    else if (algorithm == gemm_algorithm)
      conv = nullptr;
    else
      fail("backend 'onednn' has no convolution called '{}'", algorithm);
  }

  // y = conv(x, w) + bias
  void conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Tensor& y, Stream) override {
    const ConvGeometry conv = prepare(windows, x, w, y);
    const bool partly = conv.empty() || conv.out != y.box();
    if (partly) fill_bias(bias, y);
    if (conv.empty()) return;
    auto* primitive = find({ConvPass::forward, windows, x.box(), w.box(), y.box(), static_cast<bool>(bias)});
    if (primitive == nullptr) return lowered(windows, x, w, bias, y);
    const Tensor result = partly ? y.like(conv.out, MemoryClass::workspace, Fill::none) : y;
    primitive->run(dense(x, conv.in).as<float>(), w.as<float>(), bias ? bias.as<float>() : nullptr, result.as<float>());
    if (partly) copy_box(result, y, conv.out);
  }

  // dx = conv'(dy, w)
  void conv_backward_data(std::span<const Window> windows, const Tensor& dy, const Tensor& w, const Tensor& dx,
                          Stream) override {
    const ConvGeometry conv = prepare(windows, dx, w, dy);
    if (conv.empty()) return dx.zero();
    auto* primitive = find({ConvPass::backward_data, windows, dx.box(), w.box(), dy.box(), false});
    if (primitive == nullptr)
      return grouped_backward_data(conv.groups, dy, w, dx, [&](const Tensor& gy, const Tensor& gw, const Tensor& gx) {
        lowered_backward_data<float>(ConvGeometry(windows, gx, gw, gy), gy, gw, gx, product_);
      });
    const bool partly = conv.in != dx.box();
    if (partly) dx.zero();
    const Tensor result = partly ? dx.like(conv.in, MemoryClass::workspace, Fill::none) : dx;
    primitive->run(dense(dy, conv.out).as<float>(), w.as<float>(), nullptr, result.as<float>());
    if (partly) copy_box(result, dx, conv.in);
  }

  // dw = conv'(x, dy), or dw += it
  void conv_backward_filter(std::span<const Window> windows, const Tensor& x, const Tensor& dy, const Tensor& dw,
                            Write write, Stream) override {
    const ConvGeometry conv = prepare(windows, x, dw, dy);
    if (conv.empty()) return write == Write::over ? dw.zero() : void();
    auto* primitive = find({ConvPass::backward_filter, windows, x.box(), dw.box(), dy.box(), false});
    if (primitive == nullptr)
      return grouped_backward_filter(conv.groups, x, dy, dw, [&](const Tensor& gx, const Tensor& gy, const Tensor& gw) {
        lowered_backward_filter<float>(ConvGeometry(windows, gx, gw, gy), gx, gy, gw, write, product_);
      });
    primitive->run(dense(x, conv.in).as<float>(), dense(dy, conv.out).as<float>(), nullptr, dw.as<float>(), write);
  }

  void gemm(DType dtype, bool transpose_a, bool transpose_b, Index m, Index n, Index k, double alpha, const void* a,
            Index lda, const void* b, Index ldb, double beta, void* c, Index ldc, Stream stream) override {
    check(dtype);
    if (m == 0 || n == 0 || k == 0)  // oneDNN returns early and would leave beta out
      return ReferenceBackend::gemm(dtype, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc,
                                    stream);
    omp_set_num_threads(threads_);
    product_(transpose_a, transpose_b, m, n, k, static_cast<const float*>(a), lda, static_cast<const float*>(b), ldb,
             static_cast<float>(beta), static_cast<float*>(c), ldc, static_cast<float>(alpha));
  }

 private:
  ConvGeometry prepare(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Tensor& y) const {
    check(x.dtype());
    omp_set_num_threads(threads_);
    return {windows, x, w, y};
  }

  /// y = conv(x, w) + bias as matrix products
  void lowered(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y) {
    const Index groups = ConvGeometry(windows, x, w, y).groups;
    grouped_forward(groups, x, w, bias, y, [&](const Tensor& gx, const Tensor& gw, const Tensor& gb, const Tensor& gy) {
      const ConvGeometry conv(windows, gx, gw, gy);
      if (groups > 1 && conv.out != gy.box()) fill_bias(gb, gy);
      lowered_forward<float>(conv, gx, gw, gb, gy, product_);
    });
  }

  /// The primitive that computes `problem`, null for matrix products; chosen by rule where nobody has measured.
  OneDnnConv* find(const ConvProblem& problem) {
    const auto found = convs_.find(problem);
    if (found != convs_.end()) return found->second.get();
    choose(problem, algorithms(problem).front());
    return find(problem);
  }

  int threads_;
  OneDnnProduct product_;
  std::unordered_map<ConvProblem, std::unique_ptr<OneDnnConv>, ConvProblemHash> convs_;
};

}  // namespace

std::unique_ptr<Backend> make_onednn_backend(int threads) {
  if (threads < 1) fail("a backend needs 1 thread or more, not {}", threads);
  return std::make_unique<OneDnnBackend>(threads);
}

}  // namespace partita

#else

namespace partita {

std::unique_ptr<Backend> make_onednn_backend(int) {
  fail("this build lacks oneDNN: install libdnnl-dev and configure again, or use backend 'reference'");
}

}  // namespace partita

#endif
