#include "partita/distconv/conv.hpp"

#include "partita/layouts/interior.hpp"

namespace partita {

std::vector<ConvProblem> SpatialConv::problems(const Box& x, const Box& w, const Box& y, bool with_bias,
                                               bool ahead) const {
  const bool from_own = ahead && !recomputed_borders(windows_, x, x_.needed, y).empty();
  return {{ConvPass::forward, windows_, from_own ? x : x_.needed, w, y, with_bias},
          {ConvPass::backward_data, windows_, x, w, dy_.needed, false},
          {ConvPass::backward_filter, windows_, x_.needed, w, y, false}};
}

void SpatialConv::forward(const RankContext& rank, const Tensor& x, const Tensor& w, const Epilogue& epilogue,
                          const Tensor& y, Tensor& extended) const {
  HaloExchange halo(x_, x, rank);
  extended = halo.extended();
  std::vector<Border> borders;
  if (rank.ahead()) borders = recomputed_borders(windows_, x.box(), x_.needed, y.box());
  if (!borders.empty()) rank.backend.fused_conv_forward(windows_, x, w, epilogue, y, rank.stream);
  halo.finish();
  if (borders.empty()) rank.backend.fused_conv_forward(windows_, extended, w, epilogue, y, rank.stream);
  for (const auto& [outputs, inputs] : borders) {
    const Tensor thin_y = y.like(outputs, MemoryClass::workspace);
    rank.backend.fused_conv_forward(windows_, extract(extended, inputs, MemoryClass::workspace, rank.stream), w,
                                    epilogue, thin_y, rank.stream);
    copy_box(thin_y, y, outputs, rank.stream);
  }
}

void SpatialConv::backward_data(const RankContext& rank, HaloExchange& dy, const Tensor& w, const Tensor& dx) const {
  rank.backend.conv_backward_data(windows_, dy.finish(), w, dx, rank.stream);
}

void SpatialConv::backward_filter(const RankContext& rank, const Tensor& extended, const Tensor& dy, const Tensor& dw,
                                  Write write) const {
  rank.backend.conv_backward_filter(windows_, extended, dy, dw, write, rank.stream);
}

}  // namespace partita
