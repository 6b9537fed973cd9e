#include "src/backend/cpu/onednn_conv.hpp"

#include "partita/base/error.hpp"

#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <optional>
#include <unordered_map>

namespace partita {

namespace {

using Memory = dnnl::memory;
using Tag = dnnl::memory::format_tag;
using Side = ConvProblem::Side;

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

/// Returns {front..., what(side) for each spatial dimension}.
template <class What>
Memory::dims dims(const ConvProblem& p, std::initializer_list<Index> front, What&& what) {
  Memory::dims all(front);
  for (auto d = static_cast<std::size_t>(3 - p.spatial); d < 3; ++d) all.push_back(what(p.sides[d]));
  return all;
}
Memory::dims x_dims(const ConvProblem& p) {
  return dims(p, {p.batch, p.channels}, [](const Side& s) { return s.in; });
}
/// oneDNN expects the groups of weights as an extra dimension.
Memory::dims w_dims(const ConvProblem& p) {
  const auto kernel = [](const Side& s) { return s.kernel; };
  if (p.groups == 1) return dims(p, {p.filters, p.channels}, kernel);
  return dims(p, {p.groups, p.filters / p.groups, p.channels / p.groups}, kernel);
}
Memory::dims y_dims(const ConvProblem& p) {
  return dims(p, {p.batch, p.filters}, [](const Side& s) { return s.out; });
}
/// The format N D H W C.
Tag channels_last(const ConvProblem& p) { return p.spatial == 1 ? Tag::acb : p.spatial == 2 ? Tag::acdb : Tag::acdeb; }

Memory::desc described(const Memory::dims& dims, Tag tag) { return {dims, Memory::data_type::f32, tag}; }

// Descriptions of our arrays.
Memory::desc our_x(const ConvProblem& p) { return described(x_dims(p), channels_last(p)); }
Memory::desc our_y(const ConvProblem& p) { return described(y_dims(p), channels_last(p)); }
/// F D H W C, preceded by the groups: filters are stored in the order of their groups.
Memory::desc our_w(const ConvProblem& p) {
  const Tag grouped = p.spatial == 1 ? Tag::abdc : p.spatial == 2 ? Tag::abdec : Tag::abdefc;
  return described(w_dims(p), p.groups == 1 ? channels_last(p) : grouped);
}

/// The descriptions from which a primitive is made. Tag::any lets oneDNN choose a blocked format.
struct Descriptions {
  Memory::desc x, w, y, bias;
  Descriptions(const ConvProblem& p, Tag activations)
      : x(described(x_dims(p), activations)),
        w(described(w_dims(p), Tag::any)),
        y(described(y_dims(p), activations)),
        bias(p.with_bias != 0 ? described({p.filters}, Tag::a) : Memory::desc()) {}
};

/// Strides, dilations (oneDNN counts the skipped elements) and padding.
struct Slides {
  Memory::dims strides, dilations, pad_lo, pad_hi;
  explicit Slides(const ConvProblem& p)
      : strides(dims(p, {}, [](const Side& s) { return s.stride; })),
        dilations(dims(p, {}, [](const Side& s) { return s.dilation - 1; })),
        pad_lo(dims(p, {}, [](const Side& s) { return s.pad_lo; })),
        pad_hi(dims(p, {}, [](const Side& s) { return s.pad_hi; })) {}
};

/// One of oneDNN's kernels: the format of its activations, and its algorithm.
struct Kernel {
  Tag activations;
  dnnl::algorithm algorithm = dnnl::algorithm::convolution_direct;
};
Kernel nhwc(const ConvProblem& p) { return {channels_last(p)}; }
constexpr Kernel blocked_kernel{Tag::any}, winograd_kernel{Tag::any, dnnl::algorithm::convolution_winograd};

/// Extra rows and columns around dx, which are computed and then discarded. oneDNN 2.6's Winograd kernel accepts no
/// padding above 1, but inner ranks have more if rows or columns are sharded. Its backward pass also takes the padding
/// below for the padding above. With a larger dx the padding is smaller, and equal above and below.
struct Margin {
  Index above = 0, below = 0, left = 0, right = 0;
  Margin(const ConvProblem& p, const Kernel& kernel) {
    if (p.pass != ConvPass::backward_data || kernel.algorithm != winograd_kernel.algorithm) return;
    constexpr Index most = 1;
    const auto &rows = p.sides[1], &columns = p.sides[2];
    const Index both = std::min({rows.pad_lo, rows.pad_hi, most});
    above = rows.pad_lo - both;
    below = rows.pad_hi - both;
    left = columns.pad_lo - std::min(columns.pad_lo, most);
    right = columns.pad_hi - std::min(columns.pad_hi, most);
  }
  ConvProblem around(ConvProblem p) const {
    const auto grow = [](Side& side, Index lo, Index hi) {
      side.in += lo + hi;
      side.pad_lo -= lo;
      side.pad_hi -= hi;
    };
    grow(p.sides[1], above, below);
    grow(p.sides[2], left, right);
    return p;
  }
};

// The functions below make primitive descriptors. A descriptor is empty if oneDNN has no such kernel. The caller
// provides the scratchpad: otherwise oneDNN keeps one for Winograd on each thread, as large as the largest that was
// ever made there.
constexpr bool may_be_empty = true;

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr all;
  all.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return all;
}

dnnl::convolution_forward::primitive_desc forward(const ConvProblem& p, const Kernel& kernel) {
  const Descriptions d(p, kernel.activations);
  const Slides s(p);
  const dnnl::convolution_forward::desc desc(dnnl::prop_kind::forward_training, kernel.algorithm, d.x, d.w, d.bias, d.y,
                                             s.strides, s.dilations, s.pad_lo, s.pad_hi);
  return {desc, attributes(), engine(), may_be_empty};
}

dnnl::convolution_backward_data::primitive_desc backward_data(const ConvProblem& p, const Kernel& kernel) {
  const auto hint = forward(p, kernel);
  if (!hint) return {};
  const Descriptions d(p, kernel.activations);
  const Slides s(p);
  const dnnl::convolution_backward_data::desc desc(kernel.algorithm, d.x, d.w, d.y, s.strides, s.dilations, s.pad_lo,
                                                   s.pad_hi);
  return {desc, attributes(), engine(), hint, may_be_empty};
}

dnnl::convolution_backward_weights::primitive_desc backward_filter(const ConvProblem& p, const Kernel& kernel) {
  const auto hint = forward(p, kernel);
  if (!hint) return {};
  const Descriptions d(p, kernel.activations);
  const Slides s(p);
  const dnnl::convolution_backward_weights::desc desc(kernel.algorithm, d.x, d.w, d.y, s.strides, s.dilations, s.pad_lo,
                                                      s.pad_hi);
  return {desc, attributes(), engine(), hint, may_be_empty};
}

/// One array that a primitive reads. Ours is dense in channels-last format; the primitive's has the format that it
/// chose.
class Operand {
 public:
  Operand(const Memory::desc& dense, const Memory::desc& chosen)
      : dense_(dense, engine(), nullptr), chosen_(dense == chosen ? dense_ : Memory(chosen, engine())) {
    if (dense != chosen) load_.emplace(dense_, chosen_);
  }
  const Memory& chosen() const { return chosen_; }
  void load(const dnnl::stream& stream, const float* data) {
    dense_.set_data_handle(const_cast<float*>(data));
    if (load_) load_->execute(stream, dense_, chosen_);
  }

 private:
  Memory dense_, chosen_;
  std::optional<dnnl::reorder> load_;
};

/// The array that a primitive writes. If the result may have to be added to our array, the primitive has an array of
/// its own. Our array may be a part of the primitive's (see Margin).
class Result {
 public:
  Result(const Memory::desc& dense, const Memory::desc& chosen, bool may_add, const Memory::dims& offset = {})
      : dense_(dense, engine(), nullptr),
        chosen_(dense == chosen && !may_add ? dense_ : Memory(chosen, engine())),
        wanted_(chosen_) {
    if (dense == chosen && !may_add) return;
    if (dense.dims() != chosen.dims())
      wanted_ = Memory(chosen.submemory_desc(dense.dims(), offset), engine(), chosen_.get_data_handle());
    store_.emplace(wanted_, dense_);
    if (!may_add) return;
    dnnl::post_ops sum;
    sum.append_sum();
    dnnl::primitive_attr adding;
    adding.set_post_ops(sum);
    add_.emplace(dnnl::reorder::primitive_desc(wanted_, dense_, adding));
  }
  const Memory& chosen() const { return chosen_; }
  /// Sets where the result goes. Call it before the primitive runs; `store` then writes the result there.
  void point_to(float* data) const { dense_.set_data_handle(data); }
  void store(const dnnl::stream& stream, Write write) {
    auto& to_ours = write == Write::add ? add_ : store_;
    if (to_ours) to_ours->execute(stream, wanted_, dense_);
  }

 private:
  Memory dense_, chosen_, wanted_;
  std::optional<dnnl::reorder> store_, add_;
};

/// A primitive with its arrays: two that it reads and one that it writes.
class Primitive final : public OneDnnConv {
 public:
  Primitive(const ConvProblem& problem, const Kernel& kernel) {
    switch (problem.pass) {
      case ConvPass::forward: {
        const auto pd = forward(problem, kernel);
        primitive_ = make<dnnl::convolution_forward>(pd, problem);
        bind(our_x(problem), pd.src_desc(), DNNL_ARG_SRC, our_w(problem), pd.weights_desc(), DNNL_ARG_WEIGHTS,
             our_y(problem), pd.dst_desc(), DNNL_ARG_DST, false);
        if (problem.with_bias != 0)
          args_.insert({DNNL_ARG_BIAS, bias_ = Memory(described({problem.filters}, Tag::a), engine(), nullptr)});
        break;
      }
      case ConvPass::backward_data: {
        const Margin margin(problem, kernel);
        const auto pd = backward_data(margin.around(problem), kernel);
        primitive_ = make<dnnl::convolution_backward_data>(pd, problem);
        bind(our_y(problem), pd.diff_dst_desc(), DNNL_ARG_DIFF_DST, our_w(problem), pd.weights_desc(), DNNL_ARG_WEIGHTS,
             our_x(problem), pd.diff_src_desc(), DNNL_ARG_DIFF_SRC, false, {0, 0, margin.above, margin.left});
        break;
      }
      case ConvPass::backward_filter: {
        const auto pd = backward_filter(problem, kernel);
        primitive_ = make<dnnl::convolution_backward_weights>(pd, problem);
        bind(our_x(problem), pd.src_desc(), DNNL_ARG_SRC, our_y(problem), pd.diff_dst_desc(), DNNL_ARG_DIFF_DST,
             our_w(problem), pd.diff_weights_desc(), DNNL_ARG_DIFF_WEIGHTS, true);
        break;
      }
    }
  }

  void run(const float* first, const float* second, const float* bias, float* result, float* room,
           Write write) override {
    static thread_local const dnnl::stream stream(engine());
    first_->load(stream, first);
    second_->load(stream, second);
    if (bias != nullptr) bias_.set_data_handle(const_cast<float*>(bias));
    result_->point_to(result);
    room_.set_data_handle(room);
    primitive_.execute(stream, args_);
    result_->store(stream, write);
  }

  Index room() const override { return (static_cast<Index>(room_.get_desc().get_size()) + 3) / 4; }

 private:
  template <class Made, class Description>
  Made make(const Description& pd, const ConvProblem& problem) {
    if (!pd) fail("oneDNN has no kernel of the chosen algorithm for {}", problem.print());
    room_ = Memory(pd.scratchpad_desc(), engine(), nullptr);
    return Made(pd);
  }

  void bind(const Memory::desc& first, const Memory::desc& first_chosen, int first_arg, const Memory::desc& second,
            const Memory::desc& second_chosen, int second_arg, const Memory::desc& result,
            const Memory::desc& result_chosen, int result_arg, bool may_add, const Memory::dims& offset = {}) {
    first_.emplace(first, first_chosen);
    second_.emplace(second, second_chosen);
    result_.emplace(result, result_chosen, may_add, offset);
    args_ = {{first_arg, first_->chosen()},
             {second_arg, second_->chosen()},
             {result_arg, result_->chosen()},
             {DNNL_ARG_SCRATCHPAD, room_}};
  }

  dnnl::primitive primitive_;
  std::optional<Operand> first_, second_;
  std::optional<Result> result_;
  Memory bias_, room_;
  std::unordered_map<int, Memory> args_;
};

/// oneDNN's answer to a request for a kernel.
struct Found {
  std::string name;      ///< "" if there is none
  std::size_t room = 0;  ///< scratch memory in bytes
};

Found found(const ConvProblem& problem, const Kernel& kernel) {
  const auto of = [](const auto& pd) -> Found {
    return pd ? Found{pd.impl_info_str(), pd.scratchpad_desc().get_size()} : Found{};
  };
  switch (problem.pass) {
    case ConvPass::forward: return of(forward(problem, kernel));
    case ConvPass::backward_data: return of(backward_data(Margin(problem, kernel).around(problem), kernel));
    case ConvPass::backward_filter: return of(backward_filter(problem, kernel));
  }
  broken("unknown pass");
}

}  // namespace

// Problems are trimmed: where a convolution of kernel 1 has as many inputs as outputs times stride, oneDNN 2.6.3 writes
// behind its scratchpad (oneDNN issue 6035: f32 gradients of weights, channels last, fewer than 8 or 16 channels).

bool has_fast_nhwc(const ConvProblem& problem) {
  const auto name = found(problem.trimmed(), nhwc(problem)).name;
  return !name.empty() && name.find("ref") == std::string::npos;
}
bool has_winograd(const ConvProblem& problem) {
  constexpr std::size_t most = std::size_t{1} << 30;
  const auto [name, room] = found(problem.trimmed(), winograd_kernel);
  return !name.empty() && room <= most;
}

std::unique_ptr<OneDnnConv> make_nhwc_conv(const ConvProblem& problem) {
  return std::make_unique<Primitive>(problem.trimmed(), nhwc(problem));
}
std::unique_ptr<OneDnnConv> make_blocked_conv(const ConvProblem& problem) {
  return std::make_unique<Primitive>(problem.trimmed(), blocked_kernel);
}
std::unique_ptr<OneDnnConv> make_winograd_conv(const ConvProblem& problem) {
  return std::make_unique<Primitive>(problem.trimmed(), winograd_kernel);
}

}  // namespace partita
