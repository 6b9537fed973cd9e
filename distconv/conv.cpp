#include "partita/distconv/conv.hpp"

#include "partita/distconv/interior.hpp"

namespace partita {

SpatialConv::SpatialConv(std::vector<Window> windows, const Halo& x, const Halo& dy, int rank)
    : windows_(std::move(windows)),
      x_plan_(x.transfer(rank)),
      dy_plan_(dy.transfer(rank)),
      x_needed_(x.needed[static_cast<std::size_t>(rank)]),
      dy_needed_(dy.needed[static_cast<std::size_t>(rank)]) {}

bool SpatialConv::has_interior(const Box& x, const Box& y) const {
  return worth_overlap(interior_of(windows_, x, x_needed_, y), y);
}

std::vector<ConvProblem> SpatialConv::problems(const Box& x, const Box& y, bool with_bias, bool ahead) const {
  return {{ConvPass::forward, windows_, ahead && has_interior(x, y) ? x : x_needed_, y, with_bias},
          {ConvPass::backward_data, windows_, x, dy_needed_, false},
          {ConvPass::backward_filter, windows_, x_needed_, y, false}};
}

void SpatialConv::forward(const RankContext& rank, const Tensor& x, const Tensor& w, const Tensor& bias,
                          const Tensor& y, Tensor& extended) const {
  extended = extended_for(x, x_needed_);
  Exchange halo(halo_between(x, extended, x_plan_), x, extended, rank.comm, rank.stream);
  const bool ahead = rank.ahead() && has_interior(x.box(), y.box());
  if (ahead) rank.backend.conv_forward(windows_, x, w, bias, y, rank.stream);
  halo.finish();
  if (!ahead) {
    rank.backend.conv_forward(windows_, extended, w, bias, y, rank.stream);
    return;
  }
  for (const Box& border : subtract(y.box(), interior_of(windows_, x.box(), x_needed_, y.box()))) {
    const Box reads = reads_of(windows_, border, extended.box());
    const Tensor thin_y = y.like(border, MemoryClass::workspace);
    rank.backend.conv_forward(windows_, extract(extended, reads, MemoryClass::workspace), w, bias, thin_y, rank.stream);
    copy_box(thin_y, y, border);
  }
}

SpatialConv::DyExchange SpatialConv::start_backward(const RankContext& rank, const Tensor& dy) const {
  DyExchange started;
  started.extended_ = extended_for(dy, dy_needed_);
  started.exchange_ = std::make_unique<Exchange>(halo_between(dy, started.extended_, dy_plan_), dy, started.extended_,
                                                 rank.comm, rank.stream);
  if (!rank.overlap) started.exchange_->finish();
  return started;
}

void SpatialConv::backward_data(const RankContext& rank, DyExchange& dy, const Tensor& w, const Tensor& dx) const {
  dy.exchange_->finish();
  rank.backend.conv_backward_data(windows_, dy.extended_, w, dx, rank.stream);
}

void SpatialConv::backward_filter(const RankContext& rank, const Tensor& extended, const Tensor& dy, const Tensor& dw,
                                  Write write) const {
  rank.backend.conv_backward_filter(windows_, extended, dy, dw, write, rank.stream);
}

}  // namespace partita
