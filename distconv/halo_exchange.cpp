#include "partita/distconv/halo_exchange.hpp"

namespace partita {

namespace {

Tensor extended_for(const Tensor& local, const Box& needed, Fill fill) {
  return local.box().contains(needed) ? local : local.like(needed, MemoryClass::halos, fill);
}

/// Removes the copies of own boxes if both tensors share their memory.
TransferPlan between(const Tensor& local, const Tensor& extended, TransferPlan plan) {
  if (extended.data() == local.data()) plan.locals.clear();
  return plan;
}

}  // namespace

HaloExchange::HaloExchange(const HaloPart& halo, const Tensor& local, const RankContext& rank)
    : extended_(extended_for(local, halo.needed, Fill::none)),
      exchange_(
          std::make_unique<Exchange>(between(local, extended_, halo.plan), local, extended_, rank.comm, rank.stream)) {}

const Tensor& HaloExchange::finish() {
  if (exchange_) exchange_->finish();
  exchange_.reset();
  return extended_;
}

HaloReturn::HaloReturn(const HaloPart& halo, const Tensor& local)
    : halo_(halo), local_(local), extended_(extended_for(local, halo.needed, Fill::zeros)) {
  if (extended_.data() == local_.data()) local_.zero();
}

void HaloReturn::start(const RankContext& rank) {
  TransferPlan plan = halo_.plan;
  if (extended_.data() != local_.data()) {
    if (!halo_.needed.contains(local_.box())) local_.zero();
    for (const auto& own : plan.locals) copy_box(extended_, local_, own.box);
  }
  plan.locals.clear();
  exchange_ = std::make_unique<Exchange>(Exchange::adjoint(plan, extended_, local_, rank.comm, rank.stream));
}

void HaloReturn::finish() { exchange_->finish(); }

}  // namespace partita
