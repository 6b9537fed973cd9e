#include "partita/distconv/conv_transpose.hpp"

namespace partita {

std::vector<ConvProblem> SpatialConvTranspose::problems(const Box& x, const Box& w, const Box& y) const {
  return {{ConvPass::backward_data, windows_, y, w, x_.needed, false},
          {ConvPass::forward, windows_, dy_.needed, w, x, false},
          {ConvPass::backward_filter, windows_, y, w, x_.needed, false}};
}

void SpatialConvTranspose::forward(const RankContext& rank, const Tensor& x, const Tensor& w, const Epilogue& epilogue,
                                   const Tensor& y, Tensor& extended) const {
  HaloExchange halo(x_, x, rank);
  extended = halo.finish();
  rank.backend.conv_backward_data(windows_, extended, w, y, rank.stream);
  rank.backend.apply(epilogue, y, rank.stream);
}

void SpatialConvTranspose::backward_data(const RankContext& rank, HaloExchange& dy, const Tensor& w,
                                         const Tensor& dx) const {
  rank.backend.conv_forward(windows_, dy.finish(), w, {}, dx, rank.stream);
}

void SpatialConvTranspose::backward_filter(const RankContext& rank, const Tensor& extended, const Tensor& dy,
                                           const Tensor& dw, Write write) const {
  rank.backend.conv_backward_filter(windows_, dy, extended, dw, write, rank.stream);
}

}  // namespace partita
