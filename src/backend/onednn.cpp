#include "partita/base/error.hpp"
#include "reference.hpp"

#if PARTITA_HAVE_ONEDNN

#include "geometry.hpp"

#include <oneapi/dnnl/dnnl.hpp>

#include <bit>
#include <optional>
#include <unordered_map>

/// Of the OpenMP runtime that libdnnl runs on (libgomp); declared here since clang's <omp.h> belongs to another one.
extern "C" void omp_set_num_threads(int);

namespace partita {

namespace {

using Memory = dnnl::memory;
using Tag = dnnl::memory::format_tag;

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

enum class Pass : Index { forward, backward_data, backward_filter };

/// One dimension of a dense local convolution.
struct Side {
  Index in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, pad_lo = 0, pad_hi = 0;
  bool operator==(const Side&) const = default;
};

/// All that a primitive depends on. A value and a key; Index throughout, so that it has no padding and can be hashed.
struct Problem {
  Pass pass = Pass::forward;
  Index spatial = 1, batch = 0, channels = 0, filters = 0, with_bias = 0, threads = 1;
  std::array<Side, 3> sides{};
  bool operator==(const Problem&) const = default;

  Problem(Pass what, const ConvGeometry& conv, bool bias, int threads_used)
      : pass(what),
        spatial(std::max(conv.in.dims() - 2, 1)),
        batch(conv.in[0].extent()),
        channels(conv.channels),
        filters(conv.filters),
        with_bias(bias ? 1 : 0),
        threads(threads_used) {
    const auto in = sides_of(conv.in), out = sides_of(conv.out);
    for (std::size_t d = 0; d < 3; ++d) {
      const Window& w = conv.windows[d];
      const Index first = out[d + 1].lo * w.stride - w.pad_lo, last = (out[d + 1].hi - 1) * w.stride - w.pad_lo;
      sides[d] = {in[d + 1].extent(),
                  out[d + 1].extent(),
                  w.kernel,
                  w.stride,
                  w.dilation,
                  in[d + 1].lo - first,
                  last + w.reach() - in[d + 1].hi};
    }
  }

  /// {front..., what(side) of each spatial dimension}
  template <class What>
  Memory::dims dims(std::initializer_list<Index> front, What&& what) const {
    Memory::dims all(front);
    for (auto d = static_cast<std::size_t>(3 - spatial); d < 3; ++d) all.push_back(what(sides[d]));
    return all;
  }
  Memory::dims x_dims() const {
    return dims({batch, channels}, [](const Side& s) { return s.in; });
  }
  Memory::dims w_dims() const {
    return dims({filters, channels}, [](const Side& s) { return s.kernel; });
  }
  Memory::dims y_dims() const {
    return dims({batch, filters}, [](const Side& s) { return s.out; });
  }
  /// Channels last: N D H W C for activations, F D H W C for weights.
  Tag channels_last() const { return spatial == 1 ? Tag::acb : spatial == 2 ? Tag::acdb : Tag::acdeb; }
};

struct ProblemHash {
  std::size_t operator()(const Problem& problem) const {
    std::uint64_t h = 0xCBF29CE484222325;
    for (const auto word : std::bit_cast<std::array<std::uint64_t, sizeof(Problem) / sizeof(std::uint64_t)>>(problem))
      h = (h ^ word) * 0x9E3779B97F4A7C15;
    return static_cast<std::size_t>(h ^ (h >> 32));
  }
};

Memory::desc described(const Memory::dims& dims, Tag tag) { return {dims, Memory::data_type::f32, tag}; }

/// The descriptions from which a primitive is made; Tag::any lets oneDNN choose a blocked form.
struct Descriptions {
  Memory::desc x, w, y, bias;
  Descriptions(const Problem& p, Tag activations)
      : x(described(p.x_dims(), activations)),
        w(described(p.w_dims(), Tag::any)),
        y(described(p.y_dims(), activations)),
        bias(p.with_bias != 0 ? described({p.filters}, Tag::a) : Memory::desc()) {}
};

/// Strides, dilations (oneDNN counts what is skipped) and pads.
struct Slides {
  Memory::dims strides, dilations, pad_lo, pad_hi;
  explicit Slides(const Problem& p)
      : strides(p.dims({}, [](const Side& s) { return s.stride; })),
        dilations(p.dims({}, [](const Side& s) { return s.dilation - 1; })),
        pad_lo(p.dims({}, [](const Side& s) { return s.pad_lo; })),
        pad_hi(p.dims({}, [](const Side& s) { return s.pad_hi; })) {}
};

constexpr auto direct = dnnl::algorithm::convolution_direct;

dnnl::convolution_forward::primitive_desc forward(const Problem& p, Tag activations) {
  const Descriptions d(p, activations);
  const Slides s(p);
  const dnnl::convolution_forward::desc desc(dnnl::prop_kind::forward_training, direct, d.x, d.w, d.bias, d.y,
                                             s.strides, s.dilations, s.pad_lo, s.pad_hi);
  return {desc, engine()};
}

dnnl::convolution_backward_data::primitive_desc backward_data(const Problem& p, Tag activations) {
  const Descriptions d(p, activations);
  const Slides s(p);
  const dnnl::convolution_backward_data::desc desc(direct, d.x, d.w, d.y, s.strides, s.dilations, s.pad_lo, s.pad_hi);
  return {desc, engine(), forward(p, activations)};
}

dnnl::convolution_backward_weights::primitive_desc backward_filter(const Problem& p, Tag activations) {
  const Descriptions d(p, activations);
  const Slides s(p);
  const dnnl::convolution_backward_weights::desc desc(direct, d.x, d.w, d.y, s.strides, s.dilations, s.pad_lo,
                                                      s.pad_hi);
  return {desc, engine(), forward(p, activations)};
}

/// The primitive for dense channels-last activations, or for oneDNN's own choice where there is only the slow `ref`
/// kernel for them.
template <class Make>
auto fastest(const Problem& problem, Make&& make) {
  auto dense = make(problem, problem.channels_last());
  if (std::string_view(dense.impl_info_str()).find("ref") == std::string_view::npos) return dense;
  return make(problem, Tag::any);
}

/// One array of a primitive: dense channels last for us, the form that the primitive chose for it.
class Operand {
 public:
  Operand(const Memory::desc& dense, const Memory::desc& chosen)
      : dense_(dense, engine(), nullptr), chosen_(dense == chosen ? dense_ : Memory(chosen, engine())) {
    if (dense == chosen) return;
    load_.emplace(dense_, chosen_);
    store_.emplace(chosen_, dense_);
  }
  const Memory& chosen() const { return chosen_; }
  void load(const dnnl::stream& stream, const float* data) {
    dense_.set_data_handle(const_cast<float*>(data));
    if (load_) load_->execute(stream, dense_, chosen_);
  }
  /// Before the primitive runs, names where its result goes; `store` puts it there.
  void point_to(float* data) const { dense_.set_data_handle(data); }
  void store(const dnnl::stream& stream) {
    if (store_) store_->execute(stream, chosen_, dense_);
  }

 private:
  Memory dense_, chosen_;
  std::optional<dnnl::reorder> load_, store_;
};

/// A primitive with its operands: two that it reads and one that it writes.
class Convolution {
 public:
  explicit Convolution(const Problem& problem) {
    switch (problem.pass) {
      case Pass::forward: {
        const auto pd = fastest(problem, forward);
        primitive_ = dnnl::convolution_forward(pd);
        bind(problem.x_dims(), pd.src_desc(), DNNL_ARG_SRC, problem.w_dims(), pd.weights_desc(), DNNL_ARG_WEIGHTS,
             problem.y_dims(), pd.dst_desc(), DNNL_ARG_DST, problem.channels_last());
        if (problem.with_bias != 0)
          args_.insert({DNNL_ARG_BIAS, bias_ = Memory(described({problem.filters}, Tag::a), engine(), nullptr)});
        break;
      }
      case Pass::backward_data: {
        const auto pd = fastest(problem, backward_data);
        primitive_ = dnnl::convolution_backward_data(pd);
        bind(problem.y_dims(), pd.diff_dst_desc(), DNNL_ARG_DIFF_DST, problem.w_dims(), pd.weights_desc(),
             DNNL_ARG_WEIGHTS, problem.x_dims(), pd.diff_src_desc(), DNNL_ARG_DIFF_SRC, problem.channels_last());
        break;
      }
      case Pass::backward_filter: {
        const auto pd = fastest(problem, backward_filter);
        primitive_ = dnnl::convolution_backward_weights(pd);
        bind(problem.x_dims(), pd.src_desc(), DNNL_ARG_SRC, problem.y_dims(), pd.diff_dst_desc(), DNNL_ARG_DIFF_DST,
             problem.w_dims(), pd.diff_weights_desc(), DNNL_ARG_DIFF_WEIGHTS, problem.channels_last());
        break;
      }
    }
  }

  void run(const float* first, const float* second, const float* bias, float* result) {
    static thread_local const dnnl::stream stream(engine());
    first_->load(stream, first);
    second_->load(stream, second);
    if (bias != nullptr) bias_.set_data_handle(const_cast<float*>(bias));
    result_->point_to(result);
    primitive_.execute(stream, args_);
    result_->store(stream);
  }

 private:
  void bind(const Memory::dims& first, const Memory::desc& first_chosen, int first_arg, const Memory::dims& second,
            const Memory::desc& second_chosen, int second_arg, const Memory::dims& result,
            const Memory::desc& result_chosen, int result_arg, Tag dense) {
    first_.emplace(described(first, dense), first_chosen);
    second_.emplace(described(second, dense), second_chosen);
    result_.emplace(described(result, dense), result_chosen);
    args_ = {{first_arg, first_->chosen()}, {second_arg, second_->chosen()}, {result_arg, result_->chosen()}};
  }

  dnnl::primitive primitive_;
  std::optional<Operand> first_, second_, result_;
  Memory bias_;
  std::unordered_map<int, Memory> args_;
};

/// This thread's primitive for `problem`, made on first use. A cache for each thread needs no lock, and ranks that are
/// threads do not share scratch memory.
Convolution& cached(const Problem& problem) {
  static thread_local std::unordered_map<Problem, Convolution, ProblemHash> cache;
  const auto found = cache.find(problem);
  return found != cache.end() ? found->second : cache.try_emplace(problem, problem).first->second;
}

/// `tensor` over `box`: itself, or a dense copy, since strided views fall to oneDNN's slow kernel.
Tensor dense(const Tensor& tensor, const Box& box) {
  return tensor.box() == box ? tensor : extract(tensor, box, MemoryClass::workspace);
}

/// The reference with oneDNN's convolutions and matrix product.
class OneDnnBackend : public ReferenceBackend {
 public:
  explicit OneDnnBackend(int threads) : threads_(threads) {}
  std::string_view name() const override { return "onednn"; }

  void check(DType dtype) const override {
    if (dtype != DType::f32)
      fail("backend 'onednn' computes in f32, not in {}; backend 'reference' can", partita::name(dtype));
  }

  // y = conv(x, w) + bias
  void conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Tensor& y, Stream) override {
    const ConvGeometry conv = prepare(windows, x, w, y);
    const bool partly = conv.empty() || conv.out != y.box();
    if (partly) fill_bias(bias, y);
    if (conv.empty()) return;
    const Tensor result = partly ? y.like(conv.out, MemoryClass::workspace) : y;
    cached({Pass::forward, conv, static_cast<bool>(bias), threads_})
        .run(dense(x, conv.in).as<float>(), w.as<float>(), bias ? bias.as<float>() : nullptr, result.as<float>());
    if (partly) copy_box(result, y, conv.out);
  }

  // dx = conv'(dy, w)
  void conv_backward_data(std::span<const Window> windows, const Tensor& dy, const Tensor& w, const Tensor& dx,
                          Stream) override {
    const ConvGeometry conv = prepare(windows, dx, w, dy);
    const bool partly = conv.empty() || conv.in != dx.box();
    if (partly) dx.zero();
    if (conv.empty()) return;
    const Tensor result = partly ? dx.like(conv.in, MemoryClass::workspace) : dx;
    cached({Pass::backward_data, conv, false, threads_})
        .run(dense(dy, conv.out).as<float>(), w.as<float>(), nullptr, result.as<float>());
    if (partly) copy_box(result, dx, conv.in);
  }

  // dw += conv'(x, dy)
  void conv_backward_filter(std::span<const Window> windows, const Tensor& x, const Tensor& dy, const Tensor& dw,
                            Stream) override {
    const ConvGeometry conv = prepare(windows, x, dw, dy);
    if (conv.empty()) return;
    const Tensor summand = dw.like(dw.box(), MemoryClass::workspace);
    cached({Pass::backward_filter, conv, false, threads_})
        .run(dense(x, conv.in).as<float>(), dense(dy, conv.out).as<float>(), nullptr, summand.as<float>());
    add(summand, dw);
  }

  void gemm(DType dtype, bool transpose_a, bool transpose_b, Index m, Index n, Index k, double alpha, const void* a,
            Index lda, const void* b, Index ldb, double beta, void* c, Index ldc, Stream stream) override {
    check(dtype);
    if (m == 0 || n == 0 || k == 0)  // oneDNN returns early and would leave beta out
      return ReferenceBackend::gemm(dtype, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc,
                                    stream);
    omp_set_num_threads(threads_);
    const auto status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, static_cast<float>(alpha),
                                   static_cast<const float*>(a), lda, static_cast<const float*>(b), ldb,
                                   static_cast<float>(beta), static_cast<float*>(c), ldc);
    require(status == dnnl_success, "oneDNN accepts the matrix product");
  }

 private:
  ConvGeometry prepare(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Tensor& y) const {
    check(x.dtype());
    omp_set_num_threads(threads_);
    return {windows, x, w, y};
  }

  int threads_;
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
