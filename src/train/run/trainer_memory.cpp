#include "partita/base/error.hpp"
#include "partita/base/profile.hpp"
#include "partita/train/run/trainer.hpp"
#include "src/train/run/agreement.hpp"
#include "src/train/run/announced.hpp"
#include "src/train/run/held_data.hpp"
#include "src/train/run/sample_order.hpp"

namespace partita {

/// Counts what this rank's communicators hold in the memory of its tensors.
void Trainer::count_shared_memory() {
  shared_memory_.reset();
  const auto of = [&](const Communicator& ranks, const ProcessGrid& grid) {
    return ranks.shared_bytes() + grid.shared_bytes() +
           (grid.world().size() < ranks.size() ? grid.world().shared_bytes() : 0);
  };
  held_[MemoryClass::shared] = of(*between_, *grid_) + (replica_pair_ ? replica_pair_->shared_bytes() : 0) +
                               (gradients_ == between_ ? 0 : of(*gradients_, *gradient_grid_));
  shared_memory_ = Allocator::account(allocator_, held_[MemoryClass::shared], MemoryClass::shared);
  predicted_memory_.include(holding(predicted_held()));
}

MemoryUse Trainer::predicted_held() const {
  MemoryUse held = held_;
  held[MemoryClass::data] = on_cpu() ? held_[MemoryClass::data] + held_data_->predicted() : 0;
  return held;
}

/// Includes a step that was run in the prediction.
void Trainer::predict_memory(Bound& bound) {
  if (const MemoryUse held = memory_.in_step(bound.plan, predicted_held(), world_.rank());
      bound.held != held || bound.memory.total == 0) {
    bound.held = held;
    bound.memory = memory_.step_peak(bound.plan, held, world_.rank());
  }
  predicted_memory_.include(bound.memory);
}

/// Includes a checkpoint in the prediction.
void Trainer::predict_checkpoint(bool optimizer, bool saved) {
  MemoryUse held = predicted_held();
  held[MemoryClass::workspace] += checkpoint_bytes(plan(), world_.rank(), optimizer, saved && on_cpu());
  predicted_memory_.include(holding(held));
}

/// Tells the data set which boxes of which samples this rank will read, in this order. Damage that is found here fails
/// on every rank; damage that is found while reading may fail on one rank alone.
void Trainer::hold(Dataset& data, const SampleOrder& order, bool training, const Augmentation& augmentation) {
  Profile::layer("data");
  check_agreement(world_, "sizes of the data set", static_cast<std::uint64_t>(order.size()));
  const int rank = world_.rank();
  const DataShare share = memory_.share(order.size(), training, rank);
  const auto list = [&](Index count, Box (*box_of)(const Plan&, int, int)) {
    return Announced([&](Index batch, bool trains) -> const Plan& { return bound(batch, trains).plan; }, order,
                     options_.batch, training, count,
                     [&](const Plan& plan, int microbatch) { return box_of(plan, microbatch, rank); }, host_allocator_);
  };
  agree_or_throw(world_, [&] {
    held_data_->expect(data, RunMemory::data_bytes(data, share, augmentation));
    check_limit(order.size(), training);
    if (data.needs_announcement()) {
      data.hold(list(share.samples, image_box).samples(), source_box(data.sample(), share.box, augmentation));
      data.hold_targets(list(share.targets, target_box).samples(), share.target_box);
    }
    held_data_->settle(data);
  });
  if (!on_cpu()) return;
  MemoryUse listing = predicted_held();
  listing[MemoryClass::data] += RunMemory::list_bytes(data, share);
  predicted_memory_.include(holding(listing));
}

/// Throws Error if the memory limit would be exceeded in a pass.
void Trainer::check_limit(Index samples, bool training) const {
  if (options_.memory_limit == 0) return;
  const MemoryPeak peak = memory_.pass_peak(samples, training, predicted_held(), world_.rank());
  if (peak.total > options_.memory_limit)
    fail(
        "rank {} would hold up to {} ({}), {} more than the memory limit of {}; shard samples or space over more "
        "ranks, or set recompute = true for some layers",
        world_.rank(), print_bytes(peak.total), peak.each.print(), print_bytes(peak.total - options_.memory_limit),
        print_bytes(options_.memory_limit));
}

}  // namespace partita
