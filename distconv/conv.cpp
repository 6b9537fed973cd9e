#include "partita/distconv/conv.hpp"

#include "partita/base/error.hpp"

namespace partita {

namespace {

/// Own boxes need no copy where the extended tensor is the local one.
TransferPlan halo_only(TransferPlan plan, bool in_place) {
  if (in_place) plan.locals.clear();
  return plan;
}

/// The longest run of `range` in which `holds`. Outputs of padding alone hold by themselves, beyond others that do not.
template <class Holds>
Interval longest_run(Interval range, Holds&& holds) {
  Interval best{range.lo, range.lo}, now = best;
  for (Index i = range.lo; i < range.hi; ++i) {
    now = holds(i) ? Interval{now.lo, i + 1} : Interval{i + 1, i + 1};
    if (now.extent() > best.extent()) best = now;
  }
  return best;
}

}  // namespace

Tensor extended_for(const Tensor& local, const Box& needed) {
  return local.box().contains(needed) ? local : local.like(needed, MemoryClass::halos);
}

SpatialConv::SpatialConv(std::vector<Window> windows, const Halo& x, const Halo& dy, int rank)
    : windows_(std::move(windows)),
      x_plan_(x.transfer(rank)),
      dy_plan_(dy.transfer(rank)),
      x_needed_(x.needed[static_cast<std::size_t>(rank)]),
      dy_needed_(dy.needed[static_cast<std::size_t>(rank)]) {}

Box SpatialConv::interior(const Tensor& x, const Box& y) const {
  Box inside = y;
  for (int d = 2; d < y.dims(); ++d) {
    const auto& window = windows_[static_cast<std::size_t>(d - 2)];
    // Padding is no input: what an output reads of the rank's needed box decides.
    inside[d] = longest_run(y[d], [&](Index o) {
      const Interval reads = intersect(
          {o * window.stride - window.pad_lo, o * window.stride - window.pad_lo + window.reach()}, x_needed_[d]);
      return reads.empty() || (reads.lo >= x.box()[d].lo && reads.hi <= x.box()[d].hi);
    });
  }
  return inside;
}

void SpatialConv::forward(const RankContext& rank, const Tensor& x, const Tensor& w, const Tensor& bias,
                          const Tensor& y, Tensor& extended) const {
  extended = extended_for(x, x_needed_);
  Exchange halo(halo_only(x_plan_, extended.data() == x.data()), x, extended, rank.comm, rank.stream);
  const Box inside = interior(x, y.box());
  // Less than half of the outputs inside: what is computed twice would cost more than hiding can gain.
  const bool ahead = rank.overlap && !(inside == y.box()) && 2 * inside.volume() > y.volume();
  if (ahead) rank.backend.conv_forward(windows_, x, w, bias, y, rank.stream);
  halo.finish();
  if (!ahead) {
    rank.backend.conv_forward(windows_, extended, w, bias, y, rank.stream);
    return;
  }
  for (const Box& border : subtract(y.box(), inside)) {
    Box reads = extended.box();
    for (int d = 2; d < reads.dims(); ++d) {
      const auto& window = windows_[static_cast<std::size_t>(d - 2)];
      reads[d] = intersect({border[d].lo * window.stride - window.pad_lo,
                            (border[d].hi - 1) * window.stride - window.pad_lo + window.reach()},
                           reads[d]);
    }
    reads[0] = border[0];
    const Tensor thin_y = y.like(border, MemoryClass::workspace);
    rank.backend.conv_forward(windows_, extract(extended, reads, MemoryClass::workspace), w, bias, thin_y, rank.stream);
    copy_box(thin_y, y, border);
  }
}

SpatialConv::DyExchange SpatialConv::start_backward(const RankContext& rank, const Tensor& dy) const {
  DyExchange started;
  started.extended_ = extended_for(dy, dy_needed_);
  started.exchange_ = std::make_unique<Exchange>(halo_only(dy_plan_, started.extended_.data() == dy.data()), dy,
                                                 started.extended_, rank.comm, rank.stream);
  if (!rank.overlap) started.exchange_->finish();
  return started;
}

void SpatialConv::backward_data(const RankContext& rank, DyExchange& dy, const Tensor& w, const Tensor& dx) const {
  dy.exchange_->finish();
  rank.backend.conv_backward_data(windows_, dy.extended_, w, dx, rank.stream);
}

void SpatialConv::backward_filter(const RankContext& rank, const Tensor& extended, const Tensor& dy,
                                  const Tensor& dw) const {
  rank.backend.conv_backward_filter(windows_, extended, dy, dw, rank.stream);
}

}  // namespace partita
