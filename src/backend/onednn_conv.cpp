#include "onednn_conv.hpp"

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

/// {front..., what(side) of each spatial dimension}
template <class What>
Memory::dims dims(const ConvProblem& p, std::initializer_list<Index> front, What&& what) {
  Memory::dims all(front);
  for (auto d = static_cast<std::size_t>(3 - p.spatial); d < 3; ++d) all.push_back(what(p.sides[d]));
  return all;
}
Memory::dims x_dims(const ConvProblem& p) {
  return dims(p, {p.batch, p.channels}, [](const Side& s) { return s.in; });
}
/// oneDNN wants the groups of weights as a dimension of their own.
Memory::dims w_dims(const ConvProblem& p) {
  const auto kernel = [](const Side& s) { return s.kernel; };
  if (p.groups == 1) return dims(p, {p.filters, p.channels}, kernel);
  return dims(p, {p.groups, p.filters / p.groups, p.channels / p.groups}, kernel);
}
Memory::dims y_dims(const ConvProblem& p) {
  return dims(p, {p.batch, p.filters}, [](const Side& s) { return s.out; });
}
/// N D H W C
Tag channels_last(const ConvProblem& p) { return p.spatial == 1 ? Tag::acb : p.spatial == 2 ? Tag::acdb : Tag::acdeb; }

Memory::desc described(const Memory::dims& dims, Tag tag) { return {dims, Memory::data_type::f32, tag}; }

// Our arrays.
Memory::desc our_x(const ConvProblem& p) { return described(x_dims(p), channels_last(p)); }
Memory::desc our_y(const ConvProblem& p) { return described(y_dims(p), channels_last(p)); }
/// F D H W C, groups first: filters lie in the order of their groups.
Memory::desc our_w(const ConvProblem& p) {
  const Tag grouped = p.spatial == 1 ? Tag::abdc : p.spatial == 2 ? Tag::abdec : Tag::abdefc;
  return described(w_dims(p), p.groups == 1 ? channels_last(p) : grouped);
}

/// The descriptions from which a primitive is made; Tag::any lets oneDNN choose a blocked form.
struct Descriptions {
  Memory::desc x, w, y, bias;
  Descriptions(const ConvProblem& p, Tag activations)
      : x(described(x_dims(p), activations)),
        w(described(w_dims(p), Tag::any)),
        y(described(y_dims(p), activations)),
        bias(p.with_bias != 0 ? described({p.filters}, Tag::a) : Memory::desc()) {}
};

/// Strides, dilations (oneDNN counts what is skipped) and pads.
struct Slides {
  Memory::dims strides, dilations, pad_lo, pad_hi;
  explicit Slides(const ConvProblem& p)
      : strides(dims(p, {}, [](const Side& s) { return s.stride; })),
        dilations(dims(p, {}, [](const Side& s) { return s.dilation - 1; })),
        pad_lo(dims(p, {}, [](const Side& s) { return s.pad_lo; })),
        pad_hi(dims(p, {}, [](const Side& s) { return s.pad_hi; })) {}
};

/// The form of activations, and how what they make is computed.
struct Way {
  Tag activations;
  dnnl::algorithm algorithm = dnnl::algorithm::convolution_direct;
};
Way nhwc(const ConvProblem& p) { return {channels_last(p)}; }
constexpr Way blocked{Tag::any}, winograd{Tag::any, dnnl::algorithm::convolution_winograd};

/// Rows of dx that are computed and thrown away. oneDNN 2.6's Winograd takes the padding below for the one above there; with more
/// rows both are alike.
struct MoreRows {
  Index above = 0, below = 0;
  MoreRows(const ConvProblem& p, const Way& way) {
    if (p.pass != ConvPass::backward_data || way.algorithm != winograd.algorithm) return;
    const Side& rows = p.sides[1];
    above = std::max<Index>(rows.pad_lo - rows.pad_hi, 0);
    below = std::max<Index>(rows.pad_hi - rows.pad_lo, 0);
  }
  ConvProblem of(ConvProblem p) const {
    Side& rows = p.sides[1];
    rows.in += above + below;
    rows.pad_lo -= above;
    rows.pad_hi -= below;
    return p;
  }
};

// What makes a primitive; empty where oneDNN has none.
constexpr bool may_be_empty = true;

dnnl::convolution_forward::primitive_desc forward(const ConvProblem& p, const Way& way) {
  const Descriptions d(p, way.activations);
  const Slides s(p);
  const dnnl::convolution_forward::desc desc(dnnl::prop_kind::forward_training, way.algorithm, d.x, d.w, d.bias, d.y,
                                             s.strides, s.dilations, s.pad_lo, s.pad_hi);
  return {desc, engine(), may_be_empty};
}

dnnl::convolution_backward_data::primitive_desc backward_data(const ConvProblem& p, const Way& way) {
  const auto hint = forward(p, way);
  if (!hint) return {};
  const Descriptions d(p, way.activations);
  const Slides s(p);
  const dnnl::convolution_backward_data::desc desc(way.algorithm, d.x, d.w, d.y, s.strides, s.dilations, s.pad_lo,
                                                   s.pad_hi);
  return {desc, engine(), hint, may_be_empty};
}

dnnl::convolution_backward_weights::primitive_desc backward_filter(const ConvProblem& p, const Way& way) {
  const auto hint = forward(p, way);
  if (!hint) return {};
  const Descriptions d(p, way.activations);
  const Slides s(p);
  const dnnl::convolution_backward_weights::desc desc(way.algorithm, d.x, d.w, d.y, s.strides, s.dilations, s.pad_lo,
                                                      s.pad_hi);
  return {desc, engine(), hint, may_be_empty};
}

/// One array of a primitive: dense channels last for us, the form that the primitive chose for it.
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

/// The array that a primitive writes. What it may have to add to ours it must have of its own. Of more rows than ours the first
/// ones above are left out, and those below.
class Result {
 public:
  Result(const Memory::desc& dense, const Memory::desc& chosen, bool may_add, Index above = 0)
      : dense_(dense, engine(), nullptr),
        chosen_(dense == chosen && !may_add ? dense_ : Memory(chosen, engine())),
        wanted_(chosen_) {
    if (dense == chosen && !may_add) return;
    if (dense.dims() != chosen.dims())
      wanted_ = Memory(chosen.submemory_desc(dense.dims(), {0, 0, above, 0}), engine(), chosen_.get_data_handle());
    store_.emplace(wanted_, dense_);
    if (!may_add) return;
    dnnl::post_ops sum;
    sum.append_sum();
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(sum);
    add_.emplace(dnnl::reorder::primitive_desc(wanted_, dense_, attributes));
  }
  const Memory& chosen() const { return chosen_; }
  /// Before the primitive runs, names where its result goes; `store` puts it there.
  void point_to(float* data) const { dense_.set_data_handle(data); }
  void store(const dnnl::stream& stream, Write write) {
    auto& to_ours = write == Write::add ? add_ : store_;
    if (to_ours) to_ours->execute(stream, wanted_, dense_);
  }

 private:
  Memory dense_, chosen_, wanted_;
  std::optional<dnnl::reorder> store_, add_;
};

/// A primitive with its operands: two that it reads and one that it writes.
class Primitive final : public OneDnnConv {
 public:
  Primitive(const ConvProblem& problem, const Way& way) {
    switch (problem.pass) {
      case ConvPass::forward: {
        const auto pd = forward(problem, way);
        primitive_ = dnnl::convolution_forward(pd);
        bind(our_x(problem), pd.src_desc(), DNNL_ARG_SRC, our_w(problem), pd.weights_desc(), DNNL_ARG_WEIGHTS,
             our_y(problem), pd.dst_desc(), DNNL_ARG_DST, false);
        if (problem.with_bias != 0)
          args_.insert({DNNL_ARG_BIAS, bias_ = Memory(described({problem.filters}, Tag::a), engine(), nullptr)});
        break;
      }
      case ConvPass::backward_data: {
        const MoreRows more(problem, way);
        const auto pd = backward_data(more.of(problem), way);
        primitive_ = dnnl::convolution_backward_data(pd);
        bind(our_y(problem), pd.diff_dst_desc(), DNNL_ARG_DIFF_DST, our_w(problem), pd.weights_desc(), DNNL_ARG_WEIGHTS,
             our_x(problem), pd.diff_src_desc(), DNNL_ARG_DIFF_SRC, false, more.above);
        break;
      }
      case ConvPass::backward_filter: {
        const auto pd = backward_filter(problem, way);
        primitive_ = dnnl::convolution_backward_weights(pd);
        bind(our_x(problem), pd.src_desc(), DNNL_ARG_SRC, our_y(problem), pd.diff_dst_desc(), DNNL_ARG_DIFF_DST,
             our_w(problem), pd.diff_weights_desc(), DNNL_ARG_DIFF_WEIGHTS, true);
        break;
      }
    }
  }

  void run(const float* first, const float* second, const float* bias, float* result, Write write) override {
    static thread_local const dnnl::stream stream(engine());
    first_->load(stream, first);
    second_->load(stream, second);
    if (bias != nullptr) bias_.set_data_handle(const_cast<float*>(bias));
    result_->point_to(result);
    primitive_.execute(stream, args_);
    result_->store(stream, write);
  }

 private:
  void bind(const Memory::desc& first, const Memory::desc& first_chosen, int first_arg, const Memory::desc& second,
            const Memory::desc& second_chosen, int second_arg, const Memory::desc& result,
            const Memory::desc& result_chosen, int result_arg, bool may_add, Index above = 0) {
    first_.emplace(first, first_chosen);
    second_.emplace(second, second_chosen);
    result_.emplace(result, result_chosen, may_add, above);
    args_ = {{first_arg, first_->chosen()}, {second_arg, second_->chosen()}, {result_arg, result_->chosen()}};
  }

  dnnl::primitive primitive_;
  std::optional<Operand> first_, second_;
  std::optional<Result> result_;
  Memory bias_;
  std::unordered_map<int, Memory> args_;
};

/// The name of oneDNN's kernel, "" where it has none.
std::string kernel_name(const ConvProblem& problem, const Way& way) {
  const auto name = [](const auto& pd) -> std::string { return pd ? pd.impl_info_str() : ""; };
  switch (problem.pass) {
    case ConvPass::forward: return name(forward(problem, way));
    case ConvPass::backward_data: return name(backward_data(MoreRows(problem, way).of(problem), way));
    case ConvPass::backward_filter: return name(backward_filter(problem, way));
  }
  broken("unknown pass");
}

}  // namespace

bool has_fast_nhwc(const ConvProblem& problem) {
  return kernel_name(problem, nhwc(problem)).find("ref") == std::string::npos;
}
bool has_winograd(const ConvProblem& problem) { return !kernel_name(problem, winograd).empty(); }

std::unique_ptr<OneDnnConv> make_nhwc_conv(const ConvProblem& problem) {
  return std::make_unique<Primitive>(problem, nhwc(problem));
}
std::unique_ptr<OneDnnConv> make_blocked_conv(const ConvProblem& problem) {
  return std::make_unique<Primitive>(problem, blocked);
}
std::unique_ptr<OneDnnConv> make_winograd_conv(const ConvProblem& problem) {
  return std::make_unique<Primitive>(problem, winograd);
}

}  // namespace partita
