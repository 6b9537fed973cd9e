#include "partita/distconv/halo_exchange.hpp"

#include "partita/layouts/interior.hpp"

namespace partita {

namespace {

Tensor extended_for(const Tensor& local, const Box& needed, Fill fill) {
  return local.box().contains(needed) ? local : local.like(needed, MemoryClass::halos, fill);
}

/// True if all elements that the rank needs come to it. Those between two taps of a dilated window may not.
bool complete(const HaloPart& halo) {
  Index elements = 0;
  for (const auto* boxes : {&halo.plan.locals, &halo.plan.recvs})
    for (const Transfer& each : *boxes) elements += each.box.volume();
  return elements == halo.needed.volume();
}

/// Removes the copies of own boxes if both tensors share their memory.
TransferPlan between(const Tensor& local, const Tensor& extended, TransferPlan plan) {
  if (extended.data() == local.data()) plan.locals.clear();
  return plan;
}

}  // namespace

HaloExchange::HaloExchange(const HaloPart& halo, const Tensor& local, const RankContext& rank)
    : extended_(extended_for(local, halo.needed, complete(halo) ? Fill::none : Fill::zeros)),
      exchange_(
          std::make_unique<Exchange>(between(local, extended_, halo.plan), local, extended_, rank.comm, rank.stream)) {}

const Tensor& HaloExchange::finish() {
  if (exchange_) exchange_->finish();
  exchange_.reset();
  return extended_;
}

HaloExchange SpatialHalos::start_backward(const RankContext& rank, const Tensor& dy) const {
  HaloExchange halo(dy_, dy, rank);
  if (!rank.overlap) halo.finish();
  return halo;
}

HaloReturn::HaloReturn(const HaloPart& halo, const Tensor& local, Stream stream)
    : halo_(halo), local_(local), extended_(extended_for(local, halo.needed, Fill::zeros)) {
  if (extended_.data() == local_.data()) local_.zero(stream);
}

void HaloReturn::start(const RankContext& rank) {
  TransferPlan plan = halo_.plan;
  if (extended_.data() != local_.data()) {
    if (!halo_.needed.contains(local_.box())) local_.zero(rank.stream);
    for (const auto& own : plan.locals) copy_box(extended_, local_, own.box, rank.stream);
  }
  plan.locals.clear();
  exchange_ = std::make_unique<Exchange>(Exchange::adjoint(plan, extended_, local_, rank.comm, rank.stream));
}

void HaloReturn::finish() { exchange_->finish(); }

Tensor compute_with_halo(const HaloPart& halo, std::span<const Window> windows, const Tensor& x, const Box& y,
                         const RankContext& rank,
                         const std::function<void(const Tensor& from, const Box& part)>& compute) {
  HaloExchange exchange(halo, x, rank);
  const Box inside = interior_of(windows, x.box(), halo.needed, y);
  const bool ahead = rank.ahead() && !inside.empty();
  if (ahead) compute(x, inside);
  const Tensor extended = exchange.finish();
  if (!ahead && !y.empty()) compute(extended, y);
  if (ahead)
    for (const Box& border : subtract(y, inside)) compute(extended, border);
  return extended;
}

void compute_with_halo_return(const HaloPart& halo, std::span<const Window> windows, const Box& dy, const Tensor& dx,
                              const RankContext& rank,
                              const std::function<void(const Box& part, const Tensor& to)>& compute) {
  HaloReturn back(halo, dx, rank.stream);
  const Box inside = interior_of(windows, dx.box(), halo.needed, dy);
  const bool ahead = rank.ahead() && !inside.empty();
  if (!ahead && !dy.empty()) compute(dy, back.extended());
  if (ahead)
    for (const Box& border : subtract(dy, inside)) compute(border, back.extended());
  back.start(rank);
  if (ahead) compute(inside, dx);
  back.finish();
}

}  // namespace partita
