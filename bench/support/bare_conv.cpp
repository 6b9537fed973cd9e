#include "bench/support/bare_conv.hpp"

#include <algorithm>

namespace partita::bench {

using Memory = dnnl::memory;

BareConv::BareConv(const ConvShape& s, long batch, ConvPass pass, Form form, bool plain_weights) {
  const auto tag = form == Form::blocked ? Memory::format_tag::any : Memory::format_tag::nhwc;
  const auto described = [](const Memory::dims& dims, Memory::format_tag in) {
    return Memory::desc(dims, Memory::data_type::f32, in);
  };
  const auto x = described({batch, s.channels, s.size, s.size}, tag);
  const auto w = described({s.filters, s.channels, s.kernel, s.kernel}, Memory::format_tag::any);
  const auto y = described({batch, s.filters, s.out(), s.out()}, tag);
  const Memory::dims strides{s.stride, s.stride}, pads{s.pad(), s.pad()};
  constexpr auto direct = dnnl::algorithm::convolution_direct;
  const dnnl::convolution_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, direct, x, w, y, strides, pads, pads}, engine_);
  if (pass == ConvPass::forward) {
    primitive_ = dnnl::convolution_forward(forward);
    add(DNNL_ARG_SRC, forward.src_desc());
    add(DNNL_ARG_WEIGHTS, forward.weights_desc());
    add(DNNL_ARG_DST, forward.dst_desc());
  } else if (pass == ConvPass::backward_data) {
    const dnnl::convolution_backward_data::primitive_desc data({direct, x, w, y, strides, pads, pads}, engine_,
                                                               forward);
    primitive_ = dnnl::convolution_backward_data(data);
    add(DNNL_ARG_DIFF_SRC, data.diff_src_desc());
    add(DNNL_ARG_WEIGHTS, data.weights_desc());
    add(DNNL_ARG_DIFF_DST, data.diff_dst_desc());
  } else {
    const dnnl::convolution_backward_weights::primitive_desc filter({direct, x, w, y, strides, pads, pads}, engine_,
                                                                    forward);
    primitive_ = dnnl::convolution_backward_weights(filter);
    add(DNNL_ARG_SRC, filter.src_desc());
    add(DNNL_ARG_DIFF_WEIGHTS, filter.diff_weights_desc());
    add(DNNL_ARG_DIFF_DST, filter.diff_dst_desc());
  }
  if (plain_weights) reorder_weights(s, pass);
}

void BareConv::reorder_weights(const ConvShape& s, ConvPass pass) {
  const Memory plain({{s.filters, s.channels, s.kernel, s.kernel}, Memory::data_type::f32, Memory::format_tag::ohwi},
                     engine_);
  std::fill_n(static_cast<float*>(plain.get_data_handle()), plain.get_desc().get_size() / sizeof(float), 0.5F);
  const bool gradient = pass == ConvPass::backward_filter;
  const Memory& theirs = args_.at(gradient ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS);
  const Memory &from = gradient ? theirs : plain, &to = gradient ? plain : theirs;
  reorder_ = dnnl::reorder(from, to);
  reorder_args_ = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
  reorders_first_ = !gradient;
}

void BareConv::run() {
  if (reorder_ && reorders_first_) reorder_.execute(stream_, reorder_args_);
  primitive_.execute(stream_, args_);
  if (reorder_ && !reorders_first_) reorder_.execute(stream_, reorder_args_);
  stream_.wait();
}

void BareConv::add(int argument, const Memory::desc& desc) {
  Memory memory(desc, engine_);
  auto* data = static_cast<float*>(memory.get_data_handle());
  std::fill_n(data, desc.get_size() / sizeof(float), 0.5F);
  args_.emplace(argument, memory);
}

}  // namespace partita::bench
